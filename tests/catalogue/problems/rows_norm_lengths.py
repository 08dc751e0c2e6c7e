"""Rows over their root mean square. Their length varies; workloads and both ends of its range are multiples of 8."""

import torch
import torch.nn as nn

ROWS = 128
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []


KFORGE = {
    "workloads": [{"COLUMNS": 1024}, {"COLUMNS": 2048}, {"COLUMNS": 256, "weight": 0.1}],
    "dynamic": {"COLUMNS": (8, 4096)},
}
