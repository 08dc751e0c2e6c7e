"""Product of two matrices that are both stored transposed."""

import torch
import torch.nn as nn

ROWS = 4096
INNER = 2048
COLUMNS = 4096

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 512, "INNER": 448, "COLUMNS": 384},
        "emulator": {"ROWS": 70, "INNER": 45, "COLUMNS": 66},
    },
}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a.T, b.T)


def get_inputs():
    return [torch.randn(INNER, ROWS), torch.randn(COLUMNS, INNER)]


def get_init_inputs():
    return []
