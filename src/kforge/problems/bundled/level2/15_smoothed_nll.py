"""Log-softmax and negative log-likelihood with smoothed labels; rows without a label have no loss."""

import torch
import torch.nn as nn

ROWS = 8192
CLASSES = 16001

KFORGE = {
    "sizes": {
        "cpu": {"ROWS": 512, "CLASSES": 1501},
        "emulator": {"ROWS": 12, "CLASSES": 1003},
    },
    # Small scores give every row the same loss, the logarithm of the number of classes.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, scores, target):
        logs = torch.log_softmax(scores, dim=-1)
        labelled = target >= 0
        picked = logs.gather(1, torch.where(labelled, target, 0).unsqueeze(1)).squeeze(1)
        loss = -(1 - self.smoothing) * picked - self.smoothing * logs.mean(dim=-1)
        return torch.where(labelled, loss, 0.0)


def get_inputs():
    target = torch.randint(0, CLASSES, (ROWS,))
    return [torch.randn(ROWS, CLASSES) * 2.0, torch.where(torch.rand(ROWS) < 0.2, -1, target)]


def get_init_inputs():
    return [0.1]
