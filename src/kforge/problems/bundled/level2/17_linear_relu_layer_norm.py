"""Linear layer, ReLU, layer normalisation."""

import torch
import torch.nn as nn

BATCH = 32768
IN_FEATURES = 512
OUT_FEATURES = 1024

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 2048, "IN_FEATURES": 96, "OUT_FEATURES": 160},
        "emulator": {"BATCH": 60, "IN_FEATURES": 45, "OUT_FEATURES": 70},
    },
    # With small inputs the biases alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.LayerNorm(out_features)

    def forward(self, x):
        return self.norm(torch.relu(self.linear(x)))


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
