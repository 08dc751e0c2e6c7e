"""An elementwise recurrence from an initial state drawn in forward."""

import torch
import torch.nn as nn

STEPS = 16
BATCH = 32
HIDDEN = 256


class Model(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.input_gain = nn.Parameter(torch.rand(hidden) + 0.5)
        self.state_gain = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x):
        state = torch.randn(x.shape[1], x.shape[2])
        for step in x:
            state = torch.tanh(step * self.input_gain + state * self.state_gain)
        return state


def get_inputs():
    return [torch.randn(STEPS, BATCH, HIDDEN)]


def get_init_inputs():
    return [HIDDEN]
