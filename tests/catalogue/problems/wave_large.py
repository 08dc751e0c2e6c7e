"""A damped wave, elementwise, that takes some milliseconds: there are few timed blocks of it."""

import torch
import torch.nn as nn

ROWS = 512
COLUMNS = 2048


class Model(nn.Module):
    def forward(self, x):
        return torch.sin(x) * torch.exp(-x * x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
