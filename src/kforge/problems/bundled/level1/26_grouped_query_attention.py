"""Attention in which four heads of queries share each head of keys and values."""

import torch
import torch.nn as nn

BATCH = 8
KEY_HEADS = 8
LENGTH = 1024
WIDTH = 64

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 2, "KEY_HEADS": 2, "LENGTH": 176, "WIDTH": 32},
        "emulator": {"BATCH": 1, "KEY_HEADS": 2, "LENGTH": 35, "WIDTH": 16},
    },
    # Small scores make the weights uniform: query and key no longer matter.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def forward(self, query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def get_inputs():
    query = torch.randn(BATCH, 4 * KEY_HEADS, LENGTH, WIDTH) * 2.0
    key = torch.randn(BATCH, KEY_HEADS, LENGTH, WIDTH)
    return [query, key, torch.randn(BATCH, KEY_HEADS, LENGTH, WIDTH)]


def get_init_inputs():
    return []
