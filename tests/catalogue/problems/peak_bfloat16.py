"""The largest of all values, in bfloat16; how loud the signal is, is drawn with it."""

import torch
import torch.nn as nn

CHANNELS = 1024
SAMPLES = 2048


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).amax()


def get_inputs():
    return [(torch.rand(CHANNELS, SAMPLES) * (1.0 + 4.0 * torch.rand(1))).bfloat16()]


def get_init_inputs():
    return []
