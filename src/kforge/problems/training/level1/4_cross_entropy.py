"""Mean cross entropy of logits against classes, and the gradient of the logits."""

import torch
import torch.nn as nn

ROWS = 8192
CLASSES = 8192

KFORGE = {
    "backward": True,
    "sizes": {
        "cpu": {"ROWS": 512, "CLASSES": 1000},
        "emulator": {"ROWS": 24, "CLASSES": 100},
    },
}


class Model(nn.Module):
    def forward(self, logits, classes):
        return torch.nn.functional.cross_entropy(logits, classes)


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randint(CLASSES, (ROWS,))]


def get_init_inputs():
    return []
