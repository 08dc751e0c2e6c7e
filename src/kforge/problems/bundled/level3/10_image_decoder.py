"""Decoder of a variational autoencoder: a linear layer, then two transposed convolutions up to an image."""

import torch
import torch.nn as nn

BATCH = 256
LATENT = 128
WIDTH = 64
SIDE = 16

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 8, "LATENT": 32, "WIDTH": 8, "SIDE": 8},
        "emulator": {"BATCH": 2, "LATENT": 12, "WIDTH": 4, "SIDE": 4},
    },
    # With small inputs the biases alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, latent, width, side):
        super().__init__()
        self.shape = (2 * width, side, side)
        self.open = nn.Linear(latent, 2 * width * side * side)
        self.grow1 = nn.ConvTranspose2d(2 * width, width, kernel_size=4, stride=2, padding=1)
        self.grow2 = nn.ConvTranspose2d(width, 3, kernel_size=4, stride=2, padding=1)
        for layer in (self.grow1, self.grow2):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")

    def forward(self, code):
        x = torch.nn.functional.silu(self.open(code).unflatten(1, self.shape))
        x = torch.nn.functional.silu(self.grow1(x))
        return torch.sigmoid(self.grow2(x))


def get_inputs():
    return [torch.randn(BATCH, LATENT) * 3.0]


def get_init_inputs():
    return [LATENT, WIDTH, SIDE]
