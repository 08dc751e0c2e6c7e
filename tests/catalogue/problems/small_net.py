"""A small network over vectors of sixteen."""

import torch
import torch.nn as nn
import torch.nn.functional as F


ROWS = 65536
WIDE = 96


class Model(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.one = nn.Parameter(torch.randn(wide, 16) / 4)
        self.two = nn.Parameter(torch.randn(wide, wide) / wide**0.5)
        self.three = nn.Parameter(torch.randn(16, wide) / wide**0.5)

    def forward(self, x):
        return torch.relu(torch.relu(x @ self.one.t()) @ self.two.t()) @ self.three.t()


def get_inputs():
    return [torch.randn(ROWS, 16)]


def get_init_inputs():
    return [WIDE]
