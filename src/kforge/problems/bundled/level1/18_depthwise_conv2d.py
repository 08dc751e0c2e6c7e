"""Depthwise convolution with a kernel of five: each channel of an image is filtered by itself."""

import torch
import torch.nn as nn

BATCH = 64
CHANNELS = 256
SIDE = 56

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 8, "CHANNELS": 64, "SIDE": 40},
        "emulator": {"BATCH": 1, "CHANNELS": 6, "SIDE": 20},
    },
    # With small inputs the bias alone decides the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=5, padding=2, groups=channels)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
