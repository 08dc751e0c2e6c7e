"""Scaled and masked attention weights; the module is in eval mode, so its dropout does nothing."""

import torch
import torch.nn as nn

BATCH = 16
HEADS = 16
LENGTH = 1024

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "HEADS": 8, "LENGTH": 128},
        "emulator": {"BATCH": 1, "HEADS": 2, "LENGTH": 128},
    },
    # Small scores make every row uniform over its mask, whatever they are.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, scale, rate):
        super().__init__()
        self.scale = scale
        self.dropout = nn.Dropout(rate)
        self.eval()

    def forward(self, scores, mask):
        hidden = torch.finfo(scores.dtype).min
        weights = torch.softmax((scores * self.scale).masked_fill(~mask, hidden), dim=-1)
        return self.dropout(weights)


def get_inputs():
    mask = torch.rand(BATCH, 1, LENGTH, LENGTH) > 0.3
    mask |= torch.eye(LENGTH, dtype=torch.bool)
    return [torch.randn(BATCH, HEADS, LENGTH, LENGTH) * 8.0, mask]


def get_init_inputs():
    return [0.25, 0.1]
