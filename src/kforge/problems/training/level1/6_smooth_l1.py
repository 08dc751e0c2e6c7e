"""Mean smooth L1 distance of two tensors, and the gradients of both."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 4096

KFORGE = {
    "backward": True,
    "sizes": {
        "cpu": {"ROWS": 512, "COLUMNS": 1024},
        "emulator": {"ROWS": 24, "COLUMNS": 256},
    },
}


class Model(nn.Module):
    def forward(self, prediction, target):
        return torch.nn.functional.smooth_l1_loss(prediction, target)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
