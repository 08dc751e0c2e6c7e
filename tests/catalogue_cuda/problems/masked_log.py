"""A logarithm, NaN where its argument is negative, and -inf where masked out; the argument is a transposed view."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 2048


class Model(nn.Module):
    def forward(self, x, y):
        return torch.log(x).masked_fill(y < -1.0, float("-inf"))


def get_inputs():
    return [torch.randn(COLUMNS, ROWS).t(), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
