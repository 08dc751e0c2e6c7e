"""Many small matrix products, each with odd sides."""

import torch
import torch.nn as nn

BATCH = 1024
ROWS = 255
INNER = 129
COLUMNS = 257

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 96, "ROWS": 97, "INNER": 61, "COLUMNS": 103},
        "emulator": {"BATCH": 3, "ROWS": 33, "INNER": 17, "COLUMNS": 35},
    },
}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, ROWS, INNER), torch.randn(BATCH, INNER, COLUMNS)]


def get_init_inputs():
    return []
