"""Normal noise, added to what a gain made of the input."""

import torch
import torch.nn as nn

ROWS = 64
COLUMNS = 1024


class Model(nn.Module):
    def __init__(self, columns, sigma):
        super().__init__()
        self.sigma = sigma
        self.gain = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return x * self.gain + self.sigma * torch.randn_like(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS, 0.25]
