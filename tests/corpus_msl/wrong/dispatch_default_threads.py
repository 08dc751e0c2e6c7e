# style: threads left out, the first tensor is the short one
# features: default dispatch, grid from the first tensor
# bug: dispatch size
# caught: mismatch
# line: library.outer(row, column, out, row.numel())

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void outer(device const float* row [[buffer(0)]],
                  device const float* column [[buffer(1)]],
                  device float* out [[buffer(2)]],
                  constant uint& width [[buffer(3)]],
                  uint gid [[thread_position_in_grid]])
{
    out[gid] = column[gid / width] * row[gid % width];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, column, row):
        out = torch.zeros(column.numel(), row.numel(), device="mps")
        library.outer(row, column, out, row.numel())
        return out


class Model(nn.Module):
    def forward(self, column, row):
        return torch.outer(column, row)


def get_inputs():
    return [torch.randn(31), torch.randn(45)]


def get_init_inputs():
    return []
