"""A sum, clamped and masked at bounds that unscaled inputs never reach; the size is no multiple of a block."""

import torch
import torch.nn as nn

ROWS = 4095
COLUMNS = 4097
BOUND = 10.0
LOWEST = -8.0


class Model(nn.Module):
    def __init__(self, bound, lowest):
        super().__init__()
        self.bound = bound
        self.lowest = lowest

    def forward(self, x, y):
        return torch.clamp(x + y, -self.bound, self.bound).masked_fill(x < self.lowest, 0.0)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [BOUND, LOWEST]
