# style: values handed over through device memory behind a threadgroup-memory barrier
# features: device scratch, exchange inside a threadgroup
# bug: weak barrier
# caught: checked
# line: out[gid] = x[gid] + scratch[gid ^ 64u];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void exchange(device const float* x [[buffer(0)]],
                     device float* scratch [[buffer(1)]],
                     device float* out [[buffer(2)]],
                     uint gid [[thread_position_in_grid]])
{
    scratch[gid] = 2.0f * x[gid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[gid] = x[gid] + scratch[gid ^ 64u];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        scratch, out = torch.empty_like(x), torch.empty_like(x)
        library.exchange(x, scratch, out, threads=x.numel(), group_size=128)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x + 2 * x.reshape(-1, 2, 64).flip(1).reshape(x.shape)


def get_inputs():
    return [torch.randn(9, 128)]


def get_init_inputs():
    return []
