"""Rotary embedding of queries and keys, by angles looked up for each token's position."""

import torch
import torch.nn as nn

BATCH = 16
HEADS = 16
LENGTH = 2048
WIDTH = 64
POSITIONS = 8192

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 4, "HEADS": 8, "LENGTH": 256, "WIDTH": 64, "POSITIONS": 1024},
        "emulator": {"BATCH": 1, "HEADS": 3, "LENGTH": 21, "WIDTH": 16, "POSITIONS": 64},
    },
}


class Model(nn.Module):
    def __init__(self, positions, width):
        super().__init__()
        rate = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angle = torch.arange(positions)[:, None] * rate
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def turn(self, x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def forward(self, query, key, position):
        cos = self.cos[position].unsqueeze(1)
        sin = self.sin[position].unsqueeze(1)
        return self.turn(query, cos, sin), self.turn(key, cos, sin)


def get_inputs():
    shape = (BATCH, HEADS, LENGTH, WIDTH)
    return [torch.randn(shape), torch.randn(shape), torch.randint(0, POSITIONS, (BATCH, LENGTH))]


def get_init_inputs():
    return [POSITIONS, WIDTH]
