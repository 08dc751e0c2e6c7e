"""Multilayer perceptron with two hidden layers."""

import torch
import torch.nn as nn

BATCH = 8192
IN_FEATURES = 2048
HIDDEN = 4096
OUT_FEATURES = 1024

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 256, "IN_FEATURES": 256, "HIDDEN": 512, "OUT_FEATURES": 128},
        "emulator": {"BATCH": 40, "IN_FEATURES": 64, "HIDDEN": 128, "OUT_FEATURES": 48},
    },
    # With small inputs the biases alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, out_features)
        for layer in (self.first, self.second, self.last):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        return self.last(x)


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, HIDDEN, OUT_FEATURES]
