"""A product with a weight rounded to 255 steps of its own largest value, as for eight bits."""

import torch
import torch.nn as nn

ROWS = 192
FEATURES = 256


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)

    def forward(self, x):
        step = self.weight.abs().max() / 127
        return x @ (torch.round(self.weight / step) * step).t()


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]
