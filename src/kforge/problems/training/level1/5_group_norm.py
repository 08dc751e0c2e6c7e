"""Group norm of pictures, with the gradients of its weight and bias."""

import torch
import torch.nn as nn

BATCH = 64
CHANNELS = 128
SIDE = 64

KFORGE = {
    "backward": True,
    "sizes": {
        "cpu": {"BATCH": 8, "CHANNELS": 32, "SIDE": 32},
        "emulator": {"BATCH": 2, "CHANNELS": 16, "SIDE": 8},
    },
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
