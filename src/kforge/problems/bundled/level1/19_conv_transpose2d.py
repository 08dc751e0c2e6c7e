"""Transposed convolution that doubles the sides of an image."""

import torch
import torch.nn as nn

BATCH = 32
IN_CHANNELS = 128
OUT_CHANNELS = 64
SIDE = 64

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "IN_CHANNELS": 24, "OUT_CHANNELS": 16, "SIDE": 28},
        "emulator": {"BATCH": 1, "IN_CHANNELS": 6, "OUT_CHANNELS": 5, "SIDE": 9},
    },
    # With small inputs the bias alone decides the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.ConvTranspose2d(in_channels, out_channels, kernel_size=4, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
