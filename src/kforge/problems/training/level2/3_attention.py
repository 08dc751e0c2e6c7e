"""Causal attention in steps, with the gradients of queries, keys and values."""

import torch
import torch.nn as nn

BATCH = 8
HEADS = 16
LENGTH = 1024
WIDTH = 64

KFORGE = {
    "backward": True,
    "sizes": {
        "cpu": {"BATCH": 2, "HEADS": 4, "LENGTH": 128, "WIDTH": 32},
        "emulator": {"BATCH": 1, "HEADS": 2, "LENGTH": 16, "WIDTH": 16},
    },
}


class Model(nn.Module):
    def forward(self, query, key, value):
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ value


def get_inputs():
    return [*(torch.randn(BATCH, HEADS, LENGTH, WIDTH) for _ in range(3))]


def get_init_inputs():
    return []
