# style: tree over 256 slots, though the last group of a ragged dispatch has fewer threads
# features: threadgroup tree reduction, edge group
# bug: dispatch size
# caught: checked
# line: if (lid < s) slots[lid] += slots[lid + s];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void total(device const float* x [[buffer(0)]],
                  device atomic_float* out [[buffer(1)]],
                  uint gid [[thread_position_in_grid]],
                  uint lid [[thread_position_in_threadgroup]])
{
    threadgroup float slots[256];
    slots[lid] = x[gid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = 128; s > 0; s >>= 1) {
        if (lid < s) slots[lid] += slots[lid + s];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (lid == 0) atomic_fetch_add_explicit(out, slots[0], memory_order_relaxed);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.zeros(1, device="mps")
        library.total(x, out, threads=x.numel(), group_size=256)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum().reshape(1)


def get_inputs():
    return [torch.rand(1100)]


def get_init_inputs():
    return []
