"""Root-mean-square normalisation with a learned scale, times the SiLU of a gate."""

import torch
import torch.nn as nn

BATCH = 16
LENGTH = 2048
FEATURES = 2048

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "LENGTH": 128, "FEATURES": 1024},
        "emulator": {"BATCH": 2, "LENGTH": 5, "FEATURES": 2048},
    },
}


class Model(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, gate):
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps)
        return x * scale * self.weight * torch.nn.functional.silu(gate)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES), torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return [FEATURES, 1e-6]
