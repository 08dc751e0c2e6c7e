"""Kullback-Leibler divergence of each row's distribution from another's, both given as scores."""

import torch
import torch.nn as nn

ROWS = 8192
CLASSES = 8192

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 512, "CLASSES": 1000},
        "emulator": {"ROWS": 6, "CLASSES": 1003},
    },
    # Small scores make both distributions uniform, and the divergence is their rounding.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def forward(self, scores, target):
        guess = torch.log_softmax(scores, dim=-1)
        truth = torch.log_softmax(target, dim=-1)
        return torch.nn.functional.kl_div(guess, truth, reduction="none", log_target=True).sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randn(ROWS, CLASSES)]


def get_init_inputs():
    return []
