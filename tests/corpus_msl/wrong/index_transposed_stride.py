# style: transpose with the output's row length taken from the input
# features: transpose, 2D dispatch
# bug: wrong index
# caught: either
# line: out[gid.x * cols + gid.y] = in[gid.y * cols + gid.x];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void transpose(device const float* in [[buffer(0)]],
                      device float* out [[buffer(1)]],
                      constant uint& rows [[buffer(2)]],
                      constant uint& cols [[buffer(3)]],
                      uint2 gid [[thread_position_in_grid]])
{
    if (gid.x >= cols || gid.y >= rows) return;
    out[gid.x * cols + gid.y] = in[gid.y * cols + gid.x];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(cols, rows, device=x.device)
        library.transpose(x, out, rows, cols, threads=(cols, rows), group_size=(16, 16))
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(60, 44)]


def get_init_inputs():
    return []
