# style: simdgroup_barrier used across SIMD-groups
# features: simdgroup_barrier, threadgroup memory
# bug: weak barrier
# caught: checked
# line: float right = tile[(lid + 1) % 256];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void circular_average(device const float* x [[buffer(0)]],
                             device float* y [[buffer(1)]],
                             uint gid [[thread_position_in_grid]],
                             uint lid [[thread_position_in_threadgroup]])
{
    threadgroup float tile[256];
    tile[lid] = x[gid];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    float right = tile[(lid + 1) % 256];
    y[gid] = 0.5f * (tile[lid] + right);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.circular_average(x, y, threads=x.numel(), group_size=256)
        return y


class Model(nn.Module):
    def forward(self, x):
        return 0.5 * (x + x.roll(-1, dims=1))


def get_inputs():
    return [torch.randn(5, 256)]


def get_init_inputs():
    return []
