"""The square of ReLU."""

import torch
import torch.nn as nn

ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).square()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
