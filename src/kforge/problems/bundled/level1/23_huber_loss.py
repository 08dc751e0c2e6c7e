"""Huber loss of each row: square near the target, straight far from it."""

import torch
import torch.nn as nn

ROWS = 16384
COLUMNS = 8192

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 1024, "COLUMNS": 1024},
        "emulator": {"ROWS": 12, "COLUMNS": 1001},
    },
}


class Model(nn.Module):
    def forward(self, guess, target):
        return torch.nn.functional.huber_loss(guess, target, reduction="none", delta=1.5).mean(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
