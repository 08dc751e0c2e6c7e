"""Linear layer, exact GELU, and the input added back."""

import torch
import torch.nn as nn

BATCH = 65536
FEATURES = 1024

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 8192, "FEATURES": 96},
        "emulator": {"BATCH": 80, "FEATURES": 96},
    },
}


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return [FEATURES]
