"""Convolution, per-channel bias, ReLU and max pooling."""

import torch
import torch.nn as nn

BATCH = 64
IN_CHANNELS = 64
OUT_CHANNELS = 128
SIDE = 128

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "IN_CHANNELS": 16, "OUT_CHANNELS": 32, "SIDE": 64},
        "emulator": {"BATCH": 2, "IN_CHANNELS": 8, "OUT_CHANNELS": 16, "SIDE": 20},
    },
    # With small inputs the bias alone decides the output, and a negative one makes it zero.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1) * 0.1)

    def forward(self, x):
        return torch.nn.functional.max_pool2d(torch.relu(self.conv(x) + self.bias), kernel_size=2)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
