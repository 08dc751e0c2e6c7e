"""Convolution of sequences with a kernel of five whose taps are three apart."""

import torch
import torch.nn as nn

BATCH = 32
IN_CHANNELS = 256
OUT_CHANNELS = 256
LENGTH = 4096

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "IN_CHANNELS": 48, "OUT_CHANNELS": 64, "LENGTH": 768},
        "emulator": {"BATCH": 2, "IN_CHANNELS": 6, "OUT_CHANNELS": 10, "LENGTH": 50},
    },
    # With small inputs the bias alone decides the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size=5, dilation=3, padding=6)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, LENGTH)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
