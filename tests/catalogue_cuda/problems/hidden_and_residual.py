"""A hidden state, and a copy of it for the residual path, which others may change in place."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 4096


class Model(nn.Module):
    def forward(self, x):
        hidden = torch.relu(x + 0.5) * 0.25
        return hidden, hidden.clone()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
