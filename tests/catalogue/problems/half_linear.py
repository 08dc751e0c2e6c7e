"""A fully connected layer in half precision."""

import torch
import torch.nn as nn

ROWS = 128
FEATURES = 512


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features).half()

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(ROWS, FEATURES).half()]


def get_init_inputs():
    return [FEATURES]
