"""Batch normalisation in training mode: the statistics are the batch's."""

import torch
import torch.nn as nn

BATCH = 8
CHANNELS = 32
SIDE = 40


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
