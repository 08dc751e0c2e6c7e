# style: float addition in threadgroup memory by compare and exchange
# features: atomic_compare_exchange_weak_explicit, threadgroup atomics, as_type, do-while loop

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

#define SEGMENTS 32

static void atomic_add_float(threadgroup atomic_uint* address, float value) {
    uint expected = atomic_load_explicit(address, memory_order_relaxed);
    uint desired;
    do {
        desired = as_type<uint>(as_type<float>(expected) + value);
    } while (!atomic_compare_exchange_weak_explicit(address, &expected, desired,
                                                    memory_order_relaxed, memory_order_relaxed));
}

kernel void segment_sum(device const float* values [[buffer(0)]],
                        device const int* segments [[buffer(1)]],
                        device float* sums [[buffer(2)]],
                        constant uint& n [[buffer(3)]],
                        uint tid [[thread_index_in_threadgroup]],
                        uint row [[threadgroup_position_in_grid]])
{
    threadgroup atomic_uint bins[SEGMENTS];
    if (tid < SEGMENTS) atomic_store_explicit(&bins[tid], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < n; i += 128) {
        atomic_add_float(&bins[segments[i]], values[row * n + i]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < SEGMENTS) {
        sums[row * SEGMENTS + tid] = as_type<float>(atomic_load_explicit(&bins[tid], memory_order_relaxed));
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, values, segments):
        values, segments = values.contiguous(), segments.contiguous()
        rows, n = values.shape
        sums = torch.empty(rows, 32, device="mps")
        library.segment_sum(values, segments, sums, n, threads=rows * 128, group_size=128)
        return sums


class Model(nn.Module):
    def forward(self, values, segments):
        sums = torch.zeros(values.shape[0], 32, device=values.device)
        return sums.index_add(1, segments.long(), values)


def get_inputs():
    return [torch.randn(7, 450), torch.randint(0, 32, (450,), dtype=torch.int32)]


def get_init_inputs():
    return []
