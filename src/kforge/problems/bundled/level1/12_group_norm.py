"""Group normalisation of images, with a scale and a shift for each channel."""

import torch
import torch.nn as nn

BATCH = 64
CHANNELS = 256
GROUPS = 32
SIDE = 64

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 16, "CHANNELS": 64, "GROUPS": 8, "SIDE": 32},
        "emulator": {"BATCH": 2, "CHANNELS": 12, "GROUPS": 4, "SIDE": 17},
    },
}


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [GROUPS, CHANNELS]
