"""The mean of every column, in bfloat16; each column has its own size."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 256


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=0)


def get_inputs():
    return [(torch.rand(ROWS, COLUMNS) * (0.5 + torch.rand(COLUMNS))).bfloat16()]


def get_init_inputs():
    return []
