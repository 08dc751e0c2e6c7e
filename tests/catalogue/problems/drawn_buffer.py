"""ReLU times a row of gains, which is a buffer drawn at random, not a parameter."""

import torch
import torch.nn as nn

ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("gains", torch.rand(columns) + 0.5)

    def forward(self, x):
        return torch.relu(x) * self.gains


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
