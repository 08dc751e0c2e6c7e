"""Logarithm of the summed exponentials over the middle dimension."""

import torch
import torch.nn as nn

BATCH = 64
LENGTH = 2048
FEATURES = 1024

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 8, "LENGTH": 256, "FEATURES": 384},
        "emulator": {"BATCH": 2, "LENGTH": 67, "FEATURES": 96},
    },
    # Small elements give the logarithm of their number, whatever they are.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=1)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES) * 3.0]


def get_init_inputs():
    return []
