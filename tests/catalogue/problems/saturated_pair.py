"""Two samples that are alike, as a saturated layer makes them, normalised by their own variance: rounding decides."""

import torch
import torch.nn as nn

ROWS, COLUMNS = 512, 512


class Model(nn.Module):
    def forward(self, x):
        total = x.abs().sum(dim=1) * 16
        pair = torch.stack((total, total))
        centred = pair - pair.mean(dim=0)
        normal = centred / torch.sqrt(centred.square().mean(dim=0) + 1e-5)
        return normal + x[:, :2].t()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
