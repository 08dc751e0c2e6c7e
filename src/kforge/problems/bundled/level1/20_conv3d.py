"""Convolution of volumes, without padding."""

import torch
import torch.nn as nn

BATCH = 8
IN_CHANNELS = 16
OUT_CHANNELS = 32
DEPTH = 18
SIDE = 66

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 2, "IN_CHANNELS": 8, "OUT_CHANNELS": 16, "DEPTH": 12, "SIDE": 24},
        "emulator": {"BATCH": 1, "IN_CHANNELS": 3, "OUT_CHANNELS": 4, "DEPTH": 7, "SIDE": 11},
    },
    # With small inputs the bias alone decides the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size=3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, DEPTH, SIDE, SIDE)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
