"""A matrix times a weight, then a ReLU, a scale and a bias."""

import torch
import torch.nn as nn

SIZE = 1024


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)
        self.scale = nn.Parameter(torch.rand(size) + 0.5)
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return torch.relu(torch.mm(x, self.weight)) * self.scale + self.bias


def get_inputs():
    return [torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return [SIZE]
