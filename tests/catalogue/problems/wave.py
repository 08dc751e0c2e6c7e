"""A damped wave, elementwise, over a small tensor."""

import torch
import torch.nn as nn

ROWS = 128
COLUMNS = 512


class Model(nn.Module):
    def forward(self, x):
        return torch.sin(x) * torch.exp(-x * x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
