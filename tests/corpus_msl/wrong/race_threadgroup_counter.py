# style: threadgroup histogram without atomics
# features: histogram, threadgroup memory
# bug: race
# caught: checked
# line: bins[x[gid] & 15]++;

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void histogram16(device const uchar* x [[buffer(0)]],
                        device atomic_int* counts [[buffer(1)]],
                        uint gid [[thread_position_in_grid]],
                        uint lid [[thread_position_in_threadgroup]])
{
    threadgroup int bins[16];
    if (lid < 16) bins[lid] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    bins[x[gid] & 15]++;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lid < 16) atomic_fetch_add_explicit(&counts[lid], bins[lid], memory_order_relaxed);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        counts = torch.zeros(16, dtype=torch.int32, device="mps")
        library.histogram16(x, counts, threads=x.numel(), group_size=128)
        return counts


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount((x & 15).flatten().long(), minlength=16).int()


def get_inputs():
    return [torch.randint(0, 256, (8 * 128,), dtype=torch.uint8)]


def get_init_inputs():
    return []
