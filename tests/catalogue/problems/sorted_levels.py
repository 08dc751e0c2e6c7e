"""How many of a parameter's values lie below each element: its place among them, sorted."""

import torch
import torch.nn as nn

ROWS = 256
COLUMNS = 1024
LEVELS = 64


class Model(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.levels = nn.Parameter(torch.randn(levels))

    def forward(self, x):
        order = torch.sort(self.levels).values
        return torch.bucketize(x, order).to(x.dtype) + order[-1]


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [LEVELS]
