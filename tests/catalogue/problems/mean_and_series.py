"""The rows' means, and a polynomial of every value: a small output before a large one."""

import torch
import torch.nn as nn

ROWS = 256
COLUMNS = 512
FACTORS = (0.5, -0.25, 0.125, 0.3, -0.2, 0.1, 0.05, -0.02)


class Model(nn.Module):
    def forward(self, x):
        total = torch.full_like(x, FACTORS[-1])
        for factor in FACTORS[-2::-1]:
            total = total * torch.cos(x) + factor
        return x.mean(dim=1), total


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
