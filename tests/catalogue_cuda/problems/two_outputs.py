"""The rows, each divided by its root mean square, and the mean squares: a tuple."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 4096


class Model(nn.Module):
    def forward(self, x):
        energy = x.square().mean(dim=1)
        return x * torch.rsqrt(energy + 1e-6)[:, None], energy


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
