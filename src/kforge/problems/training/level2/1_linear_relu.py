"""Linear layer and ReLU, with the gradients of input, weight and bias."""

import torch
import torch.nn as nn

BATCH = 16384
FEATURES = 1024

KFORGE = {
    "backward": True,
    "sizes": {
        "cpu": {"BATCH": 1024, "FEATURES": 128},
        "emulator": {"BATCH": 32, "FEATURES": 48},
    },
}


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return [FEATURES]
