# style: a Python list is read as 32-bit integers, though it arrives as 64-bit ones
# features: list argument, constant pointer
# bug: wrong index
# caught: either
# line: int cols = shape[1];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void add_row_number(device const float* x [[buffer(0)]],
                           device float* y [[buffer(1)]],
                           constant int* shape [[buffer(2)]],
                           uint2 gid [[thread_position_in_grid]])
{
    int rows = shape[0];
    int cols = shape[1];
    if (int(gid.y) >= rows) return;
    int index = int(gid.y) * cols + int(gid.x);
    y[index] = x[index] + float(gid.y);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.zeros_like(x)
        library.add_row_number(x, y, [rows, cols], threads=(cols, rows), group_size=(32, 4))
        return y


class Model(nn.Module):
    def forward(self, x):
        return x + torch.arange(x.shape[0], device=x.device, dtype=x.dtype)[:, None]


def get_inputs():
    return [torch.randn(22, 37)]


def get_init_inputs():
    return []
