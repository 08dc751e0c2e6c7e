"""Running sum from the end to the start, over the middle dimension."""

import torch
import torch.nn as nn

BATCH = 32
LENGTH = 2048
FEATURES = 1024

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 8, "LENGTH": 256, "FEATURES": 256},
        "emulator": {"BATCH": 2, "LENGTH": 70, "FEATURES": 33},
    },
}


class Model(nn.Module):
    def forward(self, x):
        return x.flip(1).cumsum(dim=1).flip(1)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return []
