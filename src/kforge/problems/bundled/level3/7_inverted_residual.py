"""MobileNet block (eval mode): channels expanded, filtered each by itself, contracted; the input added back."""

import torch
import torch.nn as nn

BATCH = 64
CHANNELS = 64
SIDE = 56

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 2, "CHANNELS": 16, "SIDE": 24},
        "emulator": {"BATCH": 1, "CHANNELS": 6, "SIDE": 12},
    },
    # With small inputs the stored statistics alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        wide = 4 * channels
        self.expand = nn.Conv2d(channels, wide, kernel_size=1, bias=False)
        self.norm1 = nn.BatchNorm2d(wide)
        self.filter = nn.Conv2d(wide, wide, kernel_size=3, padding=1, groups=wide, bias=False)
        self.norm2 = nn.BatchNorm2d(wide)
        self.contract = nn.Conv2d(wide, channels, kernel_size=1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels)
        for conv in (self.expand, self.filter, self.contract):
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        self.eval()

    def forward(self, x):
        y = torch.nn.functional.hardswish(self.norm1(self.expand(x)))
        y = torch.nn.functional.hardswish(self.norm2(self.filter(y)))
        return x + self.norm3(self.contract(y))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 1.5]


def get_init_inputs():
    return [CHANNELS]
