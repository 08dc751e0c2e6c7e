# style: a large tile for one half of the groups, another for the other
# features: threadgroup memory in branches
# bug: threadgroup memory
# caught: checked
# line: threadgroup float backward[5000];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void turned(device const float* x [[buffer(0)]],
                   device float* y [[buffer(1)]],
                   uint i [[thread_position_in_grid]],
                   uint g [[threadgroup_position_in_grid]],
                   uint t [[thread_position_in_threadgroup]])
{
    if (g % 2 == 0) {
        threadgroup float forward[5000];
        forward[t] = x[i];
        y[i] = forward[t];
    } else {
        threadgroup float backward[5000];
        backward[t] = x[i];
        y[i] = -backward[t];
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        library.turned(x.contiguous(), y, threads=x.numel(), group_size=64)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x * torch.tensor([1.0, -1.0]).repeat_interleave(64)


def get_inputs():
    return [torch.randn(128)]


def get_init_inputs():
    return []
