# style: quick and simple, simd_sum then one float atomic per SIMD-group
# features: atomic_float, atomic_fetch_add_explicit, simd_is_first, zeroed output

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
#include <metal_atomic>
using namespace metal;

kernel void squared_sum(device atomic_float* total [[buffer(0)]],
                        device const float* x [[buffer(1)]],
                        constant uint& n [[buffer(2)]],
                        uint gid [[thread_position_in_grid]]) {
    float v = gid < n ? x[gid] : 0.0f;
    float s = simd_sum(v * v);
    if (simd_is_first()) {
        atomic_fetch_add_explicit(total, s, memory_order_relaxed);
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        total = torch.zeros(1, device="mps")
        n = x.numel()
        library.squared_sum(total, x, n, threads=(n + 255) // 256 * 256, group_size=256)
        return total


class Model(nn.Module):
    def forward(self, x):
        return x.square().sum().reshape(1)


def get_inputs():
    return [torch.randn(71, 83)]


def get_init_inputs():
    return []
