# style: stencil written over its own input
# features: stencil, in place
# bug: race
# caught: checked
# line: x[i] = 0.5f * x[i] + 0.25f * (x[i - 1] + x[i + 1]);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void smooth_in_place(device float* x [[buffer(0)]],
                            constant uint& n [[buffer(1)]],
                            uint i [[thread_position_in_grid]])
{
    if (i == 0 || i + 1 >= n) return;
    x[i] = 0.5f * x[i] + 0.25f * (x[i - 1] + x[i + 1]);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        n = y.numel()
        library.smooth_in_place(y, n, threads=n, group_size=64)
        return y


class Model(nn.Module):
    def forward(self, x):
        inner = 0.5 * x[1:-1] + 0.25 * (x[:-2] + x[2:])
        return torch.cat([x[:1], inner, x[-1:]])


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []
