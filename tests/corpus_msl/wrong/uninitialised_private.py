# style: running minimum, its first value forgotten
# features: private variable, simd_min
# bug: uninitialised
# caught: mismatch
# line: float best;

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_least(device const float* x [[buffer(0)]],
                      device float* y [[buffer(1)]],
                      constant uint& n [[buffer(2)]],
                      uint g [[threadgroup_position_in_grid]],
                      uint t [[thread_position_in_threadgroup]])
{
    float best;
    for (uint k = t; k < n; k += 32) best = min(best, x[g * n + k]);
    best = simd_min(best);
    if (t == 0) y[g] = best;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        y = torch.empty(rows, device=x.device)
        library.row_least(x, y, n, threads=rows * 32, group_size=32)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x.amin(1)


def get_inputs():
    return [torch.randn(9, 70)]


def get_init_inputs():
    return []
