# style: partial sums as plain floats, a ticket, and the last group adds them
# features: atomic ticket, mem_device, plain partial sums, threadgroup flag

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void total(device const float* x [[buffer(0)]],
                  device float* partial [[buffer(1)]],
                  device atomic_uint* ticket [[buffer(2)]],
                  device float* out [[buffer(3)]],
                  constant uint& n [[buffer(4)]],
                  uint i [[thread_position_in_grid]],
                  uint t [[thread_position_in_threadgroup]],
                  uint g [[threadgroup_position_in_grid]],
                  uint groups [[threadgroups_per_grid]])
{
    threadgroup bool last;
    float v = simd_sum(i < n ? x[i] : 0.0f);
    if (t == 0) partial[g] = v;
    threadgroup_barrier(mem_flags::mem_device);
    if (t == 0) last = atomic_fetch_add_explicit(ticket, 1u, memory_order_relaxed) == groups - 1;
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    if (last) {
        v = 0.0f;
        for (uint k = t; k < groups; k += 32) v += partial[k];
        v = simd_sum(v);
        if (t == 0) out[0] = v;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        groups = (x.numel() + 31) // 32
        partial = torch.empty(groups, device=x.device)
        ticket = torch.zeros(1, dtype=torch.int32, device=x.device)
        out = torch.empty((), device=x.device)
        library.total(x, partial, ticket, out, x.numel(), threads=groups * 32, group_size=32)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum()


def get_inputs():
    return [torch.randn(2100)]


def get_init_inputs():
    return []
