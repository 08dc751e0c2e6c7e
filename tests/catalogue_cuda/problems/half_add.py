"""Half precision in and out."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 8192


class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS).half(), torch.randn(ROWS, COLUMNS).half()]


def get_init_inputs():
    return []
