"""Softmax over rows, wanted for three numbers of rows and right for any up to 700; one of the three hardly counts."""

import torch
import torch.nn as nn

ROWS = 512
COLUMNS = 512


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []


KFORGE = {
    "workloads": [{"ROWS": 512}, {"ROWS": 64}, {"ROWS": 131, "weight": 0.1}],
    "dynamic": {"ROWS": (1, 700)},
}
