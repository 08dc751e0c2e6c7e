"""GELU of every element, in its tanh form, and its gradient."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 4096

KFORGE = {
    "backward": True,
    "sizes": {
        "cpu": {"ROWS": 512, "COLUMNS": 1024},
        "emulator": {"ROWS": 24, "COLUMNS": 256},
    },
}


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate="tanh")


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
