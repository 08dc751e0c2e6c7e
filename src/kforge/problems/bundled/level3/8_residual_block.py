"""ResNet block (eval mode) that halves the image's sides; a strided convolution is its shortcut."""

import torch
import torch.nn as nn

BATCH = 64
IN_CHANNELS = 64
OUT_CHANNELS = 128
SIDE = 56

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "IN_CHANNELS": 16, "OUT_CHANNELS": 32, "SIDE": 28},
        "emulator": {"BATCH": 1, "IN_CHANNELS": 4, "OUT_CHANNELS": 6, "SIDE": 14},
    },
    # With small inputs the stored statistics alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=2, bias=False)
        self.norm3 = nn.BatchNorm2d(out_channels)
        for conv in (self.conv1, self.conv2, self.shortcut):
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        self.eval()

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.norm3(self.shortcut(x)))


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
