# style: an argument forgotten in the launch
# features: buffer numbers
# bug: wrong buffer
# caught: either
# line: library.affine(x, y, self.scale, threads=x.numel(), group_size=64)

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void affine(device const float* x [[buffer(0)]],
                   device float* y [[buffer(1)]],
                   constant float& scale [[buffer(2)]],
                   constant float& shift [[buffer(3)]],
                   uint gid [[thread_position_in_grid]])
{
    y[gid] = fma(x[gid], scale, shift);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, scale, shift):
        super().__init__()
        self.scale = scale
        self.shift = shift

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.affine(x, y, self.scale, threads=x.numel(), group_size=64)
        return y


class Model(nn.Module):
    def __init__(self, scale, shift):
        super().__init__()
        self.scale = scale
        self.shift = shift

    def forward(self, x):
        return x * self.scale + self.shift


def get_inputs():
    return [torch.randn(10, 64)]


def get_init_inputs():
    return [1.5, 0.25]
