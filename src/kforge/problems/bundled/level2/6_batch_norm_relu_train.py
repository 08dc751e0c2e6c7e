"""Batch normalisation by the batch's own statistics (train mode), then ReLU."""

import torch
import torch.nn as nn

BATCH = 128
CHANNELS = 256
SIDE = 56

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 16, "CHANNELS": 32, "SIDE": 32},
        "emulator": {"BATCH": 4, "CHANNELS": 6, "SIDE": 28},
    },
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
