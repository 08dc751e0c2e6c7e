# style: threadgroup memory as an argument, whose length nobody sets
# features: threadgroup argument
# bug: not accepted
# caught: either
# line: threadgroup float* shared [[threadgroup(0)]],

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void reverse_rows(device const float* x [[buffer(0)]],
                         device float* y [[buffer(1)]],
                         threadgroup float* shared [[threadgroup(0)]],
                         uint lid [[thread_position_in_threadgroup]],
                         uint gid [[thread_position_in_grid]])
{
    shared[lid] = x[gid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[gid] = shared[63 - lid];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.reverse_rows(x, y, threads=x.numel(), group_size=64)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x.flip(1)


def get_inputs():
    return [torch.randn(10, 64)]


def get_init_inputs():
    return []
