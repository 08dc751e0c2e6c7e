# style: threadgroup histogram that is never set to zero
# features: threadgroup atomics, histogram
# bug: uninitialised
# caught: either
# line: atomic_fetch_add_explicit(&bins[value], 1u, memory_order_relaxed);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void histogram(device const uchar* x [[buffer(0)]],
                      device atomic_uint* counts [[buffer(1)]],
                      constant uint& n [[buffer(2)]],
                      uint gid [[thread_position_in_grid]],
                      uint lid [[thread_position_in_threadgroup]])
{
    threadgroup atomic_uint bins[256];
    if (gid < n) {
        uint value = x[gid];
        atomic_fetch_add_explicit(&bins[value], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint c = atomic_load_explicit(&bins[lid], memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[lid], c, memory_order_relaxed);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        counts = torch.zeros(256, dtype=torch.int32, device="mps")
        n = x.numel()
        library.histogram(x, counts, n, threads=(n + 255) // 256 * 256, group_size=256)
        return counts


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x.flatten().long(), minlength=256).int()


def get_inputs():
    return [torch.randint(0, 256, (3001,), dtype=torch.uint8)]


def get_init_inputs():
    return []
