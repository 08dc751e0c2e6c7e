"""A product with a positive weight, and ReLU."""

import torch
import torch.nn as nn

SIZE = 256


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.w = nn.Parameter(torch.rand(size, size) + 0.5)

    def forward(self, x):
        return torch.relu(x @ self.w)


def get_inputs():
    return [torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return [SIZE]
