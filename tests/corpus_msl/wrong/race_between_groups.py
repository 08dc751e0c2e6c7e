# style: partial sums of all groups read by the first one, as if there were a grid-wide barrier
# features: reduction, several threadgroups
# bug: race
# caught: either
# line: for (uint g = 0; g < groups; ++g) sum += partial[g];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void total(device const float* x [[buffer(0)]],
                  device float* partial [[buffer(1)]],
                  device float* out [[buffer(2)]],
                  uint gid [[thread_position_in_grid]],
                  uint lid [[thread_position_in_threadgroup]],
                  uint group [[threadgroup_position_in_grid]],
                  uint groups [[threadgroups_per_grid]])
{
    float s = simd_sum(x[gid]);
    if (lid == 0) partial[group] = s;
    threadgroup_barrier(mem_flags::mem_device);
    if (gid == 0) {
        float sum = 0.0f;
        for (uint g = 0; g < groups; ++g) sum += partial[g];
        out[0] = sum;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        groups = x.numel() // 32
        partial = torch.zeros(groups, device="mps")
        out = torch.empty(1, device="mps")
        library.total(x, partial, out, threads=x.numel(), group_size=32)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum().reshape(1)


def get_inputs():
    return [torch.rand(100, 32)]


def get_init_inputs():
    return []
