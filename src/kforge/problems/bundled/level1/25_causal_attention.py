"""Attention in which a position sees itself and what came before it."""

import torch
import torch.nn as nn

BATCH = 8
HEADS = 16
LENGTH = 1024
WIDTH = 64

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 2, "HEADS": 8, "LENGTH": 192, "WIDTH": 32},
        "emulator": {"BATCH": 1, "HEADS": 2, "LENGTH": 45, "WIDTH": 16},
    },
    # Small scores make the weights uniform: query and key no longer matter.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def forward(self, query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH) * 2.0 for _ in range(3)]


def get_init_inputs():
    return []
