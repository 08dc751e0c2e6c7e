"""Convolution, batch normalisation by stored statistics (eval mode), hard swish."""

import torch
import torch.nn as nn

BATCH = 64
IN_CHANNELS = 64
OUT_CHANNELS = 96
SIDE = 64

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "IN_CHANNELS": 16, "OUT_CHANNELS": 24, "SIDE": 40},
        "emulator": {"BATCH": 2, "IN_CHANNELS": 6, "OUT_CHANNELS": 10, "SIDE": 17},
    },
    # With small inputs the stored statistics alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=2, padding=1, bias=False)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        self.norm = nn.BatchNorm2d(out_channels)
        self.eval()

    def forward(self, x):
        return torch.nn.functional.hardswish(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, SIDE, SIDE) * 1.5]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
