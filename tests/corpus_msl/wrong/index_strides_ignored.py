# style: the input is used as if it were contiguous
# features: elementwise, transposed view
# bug: wrong index
# caught: mismatch
# line: library.scale_rows(out, view, self.scale, columns, threads=x.numel(), group_size=64)

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void scale_rows(device float* out [[buffer(0)]],
                       device const float* x [[buffer(1)]],
                       device const float* scale [[buffer(2)]],
                       constant uint& columns [[buffer(3)]],
                       uint gid [[thread_position_in_grid]])
{
    out[gid] = x[gid] * scale[gid % columns];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        view = x.transpose(0, 1)
        columns = view.shape[1]
        out = torch.empty(view.shape, device="mps")
        library.scale_rows(out, view, self.scale, columns, threads=x.numel(), group_size=64)
        return out


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return x.transpose(0, 1) * self.scale


def get_inputs():
    return [torch.randn(35, 52)]


def get_init_inputs():
    return [35]
