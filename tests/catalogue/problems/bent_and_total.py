"""Every element bent, and the mean square as a number."""

import torch
import torch.nn as nn
import torch.nn.functional as F


ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0, float(torch.exp(-x * x).mean())


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
