"""Cross entropy of each row's scores against its target class."""

import torch
import torch.nn as nn

ROWS = 8192
CLASSES = 32003

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 512, "CLASSES": 2003},
        "emulator": {"ROWS": 12, "CLASSES": 2003},
    },
    # Small scores give every row the same loss, the logarithm of the number of classes.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def forward(self, scores, target):
        return torch.nn.functional.cross_entropy(scores, target, reduction="none")


def get_inputs():
    return [torch.randn(ROWS, CLASSES) * 2.0, torch.randint(0, CLASSES, (ROWS,))]


def get_init_inputs():
    return []
