"""RMS norm times SiLU of a gate in Metal's language: one threadgroup a row, four columns a thread."""

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

constant uint THREADS = 256;
constant uint GROUPS = THREADS / 32;

kernel void rms_norm_silu_gate(device const float4* x      [[buffer(0)]],
                               device const float4* gate   [[buffer(1)]],
                               device const float4* weight [[buffer(2)]],
                               device float4* y            [[buffer(3)]],
                               constant int& quads         [[buffer(4)]],
                               constant float& eps         [[buffer(5)]],
                               uint row   [[threadgroup_position_in_grid]],
                               uint lid   [[thread_position_in_threadgroup]],
                               uint lane  [[thread_index_in_simdgroup]],
                               uint group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float sums[GROUPS];
    long start = long(row) * quads;
    float sum = 0.0f;
    for (int i = lid; i < quads; i += THREADS) sum += dot(x[start + i], x[start + i]);
    sum = simd_sum(sum);
    if (lane == 0) sums[group] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = 0.0f;
    for (uint g = 0; g < GROUPS; ++g) sum += sums[g];
    float scale = precise::rsqrt(sum / (4 * quads) + eps);
    for (int i = lid; i < quads; i += THREADS) {
        float4 g = gate[start + i];
        y[start + i] = x[start + i] * scale * weight[i] * g / (1.0f + precise::exp(-g));
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, gate):
        x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        quads = x.shape[-1] // 4
        library.rms_norm_silu_gate(
            x, gate, self.weight.data, y, quads, self.eps, threads=x.numel() // quads // 4 * 256, group_size=256
        )
        return y
