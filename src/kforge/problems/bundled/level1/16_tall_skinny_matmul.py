"""A very tall matrix times one with only seventeen columns."""

import torch
import torch.nn as nn

ROWS = 1048576
INNER = 128
COLUMNS = 17

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 32768, "INNER": 64},
        "emulator": {"ROWS": 500, "INNER": 45},
    },
}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []
