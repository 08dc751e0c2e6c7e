"""MLP-Mixer block: a perceptron across the patches of an image, then one across its channels."""

import torch
import torch.nn as nn

BATCH = 64
PATCHES = 196
FEATURES = 512
HIDDEN = 1024

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 8, "PATCHES": 49, "FEATURES": 96, "HIDDEN": 192},
        "emulator": {"BATCH": 2, "PATCHES": 15, "FEATURES": 24, "HIDDEN": 28},
    },
}


class Model(nn.Module):
    def __init__(self, patches, features, hidden):
        super().__init__()
        self.norm1 = nn.LayerNorm(features)
        self.across_patches = nn.Sequential(nn.Linear(patches, hidden), nn.GELU(), nn.Linear(hidden, patches))
        self.norm2 = nn.LayerNorm(features)
        self.across_channels = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))

    def forward(self, x):
        x = x + self.across_patches(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across_channels(self.norm2(x))


def get_inputs():
    return [torch.randn(BATCH, PATCHES, FEATURES)]


def get_init_inputs():
    return [PATCHES, FEATURES, HIDDEN]
