"""Gated recurrent unit, its steps one after another; only the last state is returned."""

import torch
import torch.nn as nn

BATCH = 1024
LENGTH = 24
FEATURES = 256
HIDDEN = 512

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 128, "LENGTH": 8, "FEATURES": 48, "HIDDEN": 64},
        "emulator": {"BATCH": 12, "LENGTH": 5, "FEATURES": 20, "HIDDEN": 24},
    },
    # With small inputs the biases alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.hidden = hidden
        self.inward = nn.Linear(features, 3 * hidden)
        self.onward = nn.Linear(hidden, 3 * hidden)

    def step(self, given, state):
        reset, update, fresh = given.chunk(3, dim=-1)
        old_reset, old_update, old = self.onward(state).chunk(3, dim=-1)
        kept = torch.sigmoid(update + old_update)
        new = torch.tanh(fresh + torch.sigmoid(reset + old_reset) * old)
        return new + kept * (state - new)

    def forward(self, x):
        given = self.inward(x)
        state = x.new_zeros(x.shape[0], self.hidden)
        for position in range(x.shape[1]):
            state = self.step(given[:, position], state)
        return state


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN]
