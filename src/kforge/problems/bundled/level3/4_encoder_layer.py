"""Post-norm transformer encoder layer over sequences of different lengths, padding masked."""

import torch
import torch.nn as nn

BATCH = 16
LENGTH = 512
FEATURES = 512
HEADS = 8
HIDDEN = 2048

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "LENGTH": 64, "FEATURES": 128, "HEADS": 4, "HIDDEN": 256},
        "emulator": {"BATCH": 2, "LENGTH": 20, "FEATURES": 32, "HEADS": 2, "HIDDEN": 48},
    },
    # With small inputs the biases alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, features, heads, hidden):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(features, features)
        # No bias: a key's bias would move all of a row's scores alike, and so change nothing.
        self.key = nn.Linear(features, features, bias=False)
        self.value = nn.Linear(features, features)
        self.project = nn.Linear(features, features)
        self.norm1 = nn.LayerNorm(features)
        self.expand = nn.Linear(features, hidden)
        self.contract = nn.Linear(hidden, features)
        self.norm2 = nn.LayerNorm(features)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, x, visible):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        mask = visible[:, None, None, :]
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.project(mixed.transpose(1, 2).flatten(2))

    def forward(self, x, visible):
        x = self.norm1(x + self.attend(x, visible))
        return self.norm2(x + self.contract(torch.relu(self.expand(x))))


def get_inputs():
    length = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH, 1))
    return [torch.randn(BATCH, LENGTH, FEATURES), torch.arange(LENGTH) < length]


def get_init_inputs():
    return [FEATURES, HEADS, HIDDEN]
