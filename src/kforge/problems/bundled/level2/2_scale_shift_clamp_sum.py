"""Per-channel scale and shift, clamp, and the sum over the last dimension."""

import torch
import torch.nn as nn

BATCH = 256
CHANNELS = 512
LENGTH = 1024

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 32, "CHANNELS": 128, "LENGTH": 256},
        "emulator": {"BATCH": 2, "CHANNELS": 12, "LENGTH": 1024},
    },
    # With small inputs the sums are the shifts' alone.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, channels, low, high):
        super().__init__()
        self.low = low
        self.high = high
        self.scale = nn.Parameter(torch.rand(channels, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels, 1) * 0.2)

    def forward(self, x):
        return torch.clamp(x * self.scale + self.shift, self.low, self.high).sum(dim=-1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS, -1.0, 1.5]
