"""Matrix times vector: every element of the matrix is used once, so memory decides."""

import torch
import torch.nn as nn

ROWS = 16384
COLUMNS = 16381

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 6144, "COLUMNS": 1021},
        "emulator": {"ROWS": 130, "COLUMNS": 257},
    },
}


class Model(nn.Module):
    def forward(self, matrix, vector):
        return torch.mv(matrix, vector)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs():
    return []
