# style: a function constant that nobody gives a value
# features: function_constant
# bug: not accepted
# caught: either
# line: constant bool square [[function_constant(0)]];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

constant bool square [[function_constant(0)]];

kernel void power(device const float* x [[buffer(0)]],
                  device float* y [[buffer(1)]],
                  uint gid [[thread_position_in_grid]])
{
    y[gid] = square ? x[gid] * x[gid] : x[gid];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.power(x, y, threads=x.numel(), group_size=64)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x * x


def get_inputs():
    return [torch.randn(10, 64)]


def get_init_inputs():
    return []
