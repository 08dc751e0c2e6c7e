# style: the last group to finish adds up the partial sums, counted with an atomic
# features: atomic counter, partial sums as atomics, threadgroup flag, mem_device

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void dot_product(device const float* a [[buffer(0)]],
                        device const float* b [[buffer(1)]],
                        device atomic_float* partial [[buffer(2)]],
                        device atomic_uint* done [[buffer(3)]],
                        device float* out [[buffer(4)]],
                        constant uint& n [[buffer(5)]],
                        uint gid [[thread_position_in_grid]],
                        uint lid [[thread_position_in_threadgroup]],
                        uint tg [[threadgroup_position_in_grid]],
                        uint groups [[threadgroups_per_grid]])
{
    threadgroup float sums[2];
    threadgroup uint arrived;

    const float v = simd_sum(gid < n ? a[gid] * b[gid] : 0.0f);
    if (lid % 32 == 0) sums[lid / 32] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (lid == 0) {
        atomic_store_explicit(&partial[tg], sums[0] + sums[1], memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_device);
    if (lid == 0) {
        arrived = atomic_fetch_add_explicit(done, 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (arrived == groups - 1 && lid < 32) {
        float total = 0.0f;
        for (uint g = lid; g < groups; g += 32) total += atomic_load_explicit(&partial[g], memory_order_relaxed);
        total = simd_sum(total);
        if (lid == 0) out[0] = total;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        n = a.numel()
        groups = (n + 63) // 64
        partial = torch.empty(groups, device=a.device)
        done = torch.zeros(1, dtype=torch.int32, device=a.device)
        out = torch.empty((), device=a.device)
        library.dot_product(a, b, partial, done, out, n, threads=groups * 64, group_size=64)
        return out


class Model(nn.Module):
    def forward(self, a, b):
        return torch.dot(a, b)


def get_inputs():
    return [torch.rand(2500), torch.rand(2500)]


def get_init_inputs():
    return []
