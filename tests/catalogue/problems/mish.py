"""Mish: x tanh(softplus(x))."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return F.mish(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
