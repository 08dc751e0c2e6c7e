# style: double where the language has none
# features: double
# bug: not accepted
# caught: either
# line: double acc = 0.0;

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_sum(device const float* x [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    constant uint& cols [[buffer(2)]],
                    uint row [[thread_position_in_grid]])
{
    double acc = 0.0;
    for (uint c = 0; c < cols; ++c) acc += x[row * cols + c];
    out[row] = float(acc);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device="mps")
        library.row_sum(x, out, cols, threads=rows, group_size=32)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(20, 30)]


def get_init_inputs():
    return []
