"""Sum over the first dimension: what is added up lies a whole row apart in memory."""

import torch
import torch.nn as nn

ROWS = 65536
COLUMNS = 4099

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 8192, "COLUMNS": 515},
        "emulator": {"ROWS": 515, "COLUMNS": 67},
    },
}


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
