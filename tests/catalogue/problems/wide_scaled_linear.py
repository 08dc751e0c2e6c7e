"""A product whose columns are scaled by factors of very different size."""

import torch
import torch.nn as nn

ROWS = 256
FEATURES = 256


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.scale = nn.Parameter(10 ** (torch.rand(features) * 9 - 6))

    def forward(self, x):
        return (x @ self.weight.t()) * self.scale


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]
