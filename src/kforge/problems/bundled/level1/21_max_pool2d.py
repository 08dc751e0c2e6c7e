"""Max pooling with windows that overlap and reach over the image's edge."""

import torch
import torch.nn as nn

BATCH = 64
CHANNELS = 128
SIDE = 112

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "CHANNELS": 32, "SIDE": 48},
        "emulator": {"BATCH": 2, "CHANNELS": 5, "SIDE": 25},
    },
}


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
