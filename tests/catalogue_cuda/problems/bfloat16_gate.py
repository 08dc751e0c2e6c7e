"""A gate in bfloat16."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 8192


class Model(nn.Module):
    def forward(self, x, y):
        return x * torch.sigmoid(y)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS).bfloat16(), torch.randn(ROWS, COLUMNS).bfloat16()]


def get_init_inputs():
    return []
