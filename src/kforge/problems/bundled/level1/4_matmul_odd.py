"""Matrix product whose three sides are all prime, so that no tile divides them."""

import torch
import torch.nn as nn

ROWS = 4093
INNER = 2053
COLUMNS = 3067

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 509, "INNER": 331, "COLUMNS": 397},
        "emulator": {"ROWS": 99, "INNER": 67, "COLUMNS": 83},
    },
}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []
