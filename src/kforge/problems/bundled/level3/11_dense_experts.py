"""Mixture of experts in which every expert works on every token and the router weighs what they say."""

import torch
import torch.nn as nn

TOKENS = 4096
FEATURES = 512
HIDDEN = 1024
EXPERTS = 8

KFORGE = {
    "sizes": {
        "cpu": {"TOKENS": 192, "FEATURES": 64, "HIDDEN": 128, "EXPERTS": 6},
        "emulator": {"TOKENS": 20, "FEATURES": 24, "HIDDEN": 28, "EXPERTS": 3},
    },
    # With small inputs the router's bias alone decides the weights.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, features, hidden, experts):
        super().__init__()
        self.route = nn.Linear(features, experts)
        self.inward = nn.Parameter(torch.randn(experts, features, hidden) / features**0.5)
        self.outward = nn.Parameter(torch.randn(experts, hidden, features) / hidden**0.5)

    def forward(self, x):
        weight = torch.softmax(self.route(x), dim=-1)
        inner = torch.nn.functional.gelu(torch.matmul(x, self.inward))
        said = torch.bmm(inner, self.outward)
        return (said * weight.T.unsqueeze(-1)).sum(dim=0)


def get_inputs():
    return [torch.randn(TOKENS, FEATURES) * 2.0]


def get_init_inputs():
    return [FEATURES, HIDDEN, EXPERTS]
