"""Gated perceptron: the SiLU of one projection times another, projected back."""

import torch
import torch.nn as nn

TOKENS = 4096
FEATURES = 1024
HIDDEN = 2752

KFORGE = {
    "sizes": {
        "cpu": {"TOKENS": 384, "FEATURES": 128, "HIDDEN": 344},
        "emulator": {"TOKENS": 20, "FEATURES": 32, "HIDDEN": 44},
    },
}


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden, bias=False)
        self.up = nn.Linear(features, hidden, bias=False)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN]
