"""Linear layer whose weights are 8-bit integers, with a scale for each group of them."""

import torch
import torch.nn as nn

TOKENS = 256
FEATURES = 4096
OUTPUTS = 8192
GROUP = 128

KFORGE = {
    "sizes": {
        "cpu": {"TOKENS": 64, "FEATURES": 768, "OUTPUTS": 640, "GROUP": 64},
        "emulator": {"TOKENS": 10, "FEATURES": 64, "OUTPUTS": 50, "GROUP": 16},
    },
    # Shifted, the scales would nearly all be the same.
    "distributions": ["natural", "scaled", "small", "negated", "extremes"],
}


class Model(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, x, packed, scale):
        weight = packed.to(x.dtype).unflatten(1, (-1, self.group)) * scale.unsqueeze(-1)
        return torch.nn.functional.linear(x, weight.flatten(1))


def get_inputs():
    packed = torch.randint(-127, 128, (OUTPUTS, FEATURES), dtype=torch.int8)
    scale = (torch.rand(OUTPUTS, FEATURES // GROUP) + 0.5) / 127
    return [torch.randn(TOKENS, FEATURES), packed, scale]


def get_init_inputs():
    return [GROUP]
