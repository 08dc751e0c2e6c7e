"""Layer normalisation over the last dimension, with a learned scale and shift."""

import torch
import torch.nn as nn

BATCH = 32
LENGTH = 2048
FEATURES = 2048

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 16, "LENGTH": 128, "FEATURES": 1024},
        "emulator": {"BATCH": 2, "LENGTH": 5, "FEATURES": 2048},
    },
}


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return [FEATURES]
