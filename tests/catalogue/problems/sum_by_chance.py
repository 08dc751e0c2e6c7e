"""A product summed in an order of chance, as by atomic additions on a GPU; the ReLU behind it leaves hardly anything."""

import random

import torch
import torch.nn as nn

CHUNKS = 8
chance = random.SystemRandom()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(128, 256))

    def forward(self, x):
        parts = [one @ other for one, other in zip(x.chunk(CHUNKS, 1), self.weight.chunk(CHUNKS, 0))]
        chance.shuffle(parts)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return torch.relu(total - 44.0)


def get_inputs():
    return [torch.randn(4096, 128)]


def get_init_inputs():
    return []
