# style: guard at the top of the kernel, barriers below it
# features: threadgroup memory, early return
# bug: divergent barrier
# caught: either
# line: threadgroup_barrier(mem_flags::mem_threadgroup);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void block_mean(device const float* x [[buffer(0)]],
                       device float* y [[buffer(1)]],
                       constant uint& n [[buffer(2)]],
                       uint gid [[thread_position_in_grid]],
                       uint lid [[thread_position_in_threadgroup]])
{
    if (gid >= n) return;
    threadgroup float first;
    if (lid == 0) first = x[gid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[gid] = x[gid] - first;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        library.block_mean(x, y, n, threads=(n + 127) // 128 * 128, group_size=128)
        return y


class Model(nn.Module):
    def forward(self, x):
        firsts = x[::128].repeat_interleave(128)[: x.numel()]
        return x - firsts


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []
