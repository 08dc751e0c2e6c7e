"""A sum, clamped at a bound that unscaled inputs never reach; the size is no multiple of a vector."""

import torch
import torch.nn as nn

ROWS = 511
COLUMNS = 1023
BOUND = 10.0


class Model(nn.Module):
    def __init__(self, bound):
        super().__init__()
        self.bound = bound

    def forward(self, x, y):
        return torch.clamp(x + y, -self.bound, self.bound)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [BOUND]
