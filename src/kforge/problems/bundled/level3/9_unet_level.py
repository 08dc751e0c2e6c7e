"""One level of a U-net: down, a convolution, up again, joined with what was kept, a last convolution."""

import torch
import torch.nn as nn

BATCH = 16
CHANNELS = 32
SIDE = 128

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 2, "CHANNELS": 8, "SIDE": 40},
        "emulator": {"BATCH": 1, "CHANNELS": 4, "SIDE": 14},
    },
    # With small inputs the biases alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.enter = nn.Conv2d(3, channels, kernel_size=3, padding=1)
        self.middle = nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1)
        self.leave = nn.Conv2d(3 * channels, channels, kernel_size=3, padding=1)
        for conv in (self.enter, self.middle, self.leave):
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")

    def forward(self, x):
        kept = torch.relu(self.enter(x))
        low = torch.relu(self.middle(torch.nn.functional.max_pool2d(kept, kernel_size=2)))
        back = torch.nn.functional.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.leave(torch.cat([kept, back], dim=1))


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
