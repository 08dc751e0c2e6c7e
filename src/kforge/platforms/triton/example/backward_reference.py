"""Leaky ReLU followed by a per-column scale, with the gradients of input and scale."""

import torch
import torch.nn as nn

ROWS = 32768
COLUMNS = 4096

KFORGE = {"backward": True}


class Model(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, self.slope) * self.scale


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS, 0.1]
