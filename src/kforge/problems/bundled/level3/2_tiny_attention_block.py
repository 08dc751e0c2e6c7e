"""Pre-norm transformer block: causal self-attention, then a two-layer perceptron."""

import torch
import torch.nn as nn

BATCH = 16
LENGTH = 1024
FEATURES = 768
HEADS = 12

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "LENGTH": 64, "FEATURES": 128, "HEADS": 4},
        "emulator": {"BATCH": 1, "LENGTH": 40, "FEATURES": 128, "HEADS": 2},
    },
}


class Model(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(features)
        # No bias: a key's bias would move all of a row's scores alike, and so change nothing.
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.project = nn.Linear(features, features)
        self.norm2 = nn.LayerNorm(features)
        self.expand = nn.Linear(features, 4 * features)
        self.contract = nn.Linear(4 * features, features)

    def attend(self, x):
        batch, length, features = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, features // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project(mixed.transpose(1, 2).reshape(batch, length, features))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.contract(torch.nn.functional.gelu(self.expand(self.norm2(x))))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return [FEATURES, HEADS]
