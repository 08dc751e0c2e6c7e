"""Negative values are mixed into the other rows; as the problem draws its inputs there are none."""

import torch
import torch.nn as nn

SIZE = 256


class Model(nn.Module):
    def forward(self, x):
        return x + torch.mm(torch.relu(-x), x)


def get_inputs():
    return [torch.rand(SIZE, SIZE)]


def get_init_inputs():
    return []
