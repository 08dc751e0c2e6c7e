"""The embedding of each token's place among the visible ones, found by a running sum over the mask, is added to it."""

import torch
import torch.nn as nn

BATCH = 64
LENGTH = 2048
FEATURES = 512

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 16, "LENGTH": 256, "FEATURES": 192},
        "emulator": {"BATCH": 2, "LENGTH": 33, "FEATURES": 36},
    },
}


class Model(nn.Module):
    def __init__(self, length, features):
        super().__init__()
        self.table = nn.Embedding(length + 1, features)

    def forward(self, x, mask):
        place = torch.cumsum(mask, dim=1) * mask
        return x + self.table(place)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES), torch.rand(BATCH, LENGTH) > 0.3]


def get_init_inputs():
    return [LENGTH, FEATURES]
