# style: transformer block style, half in and out, float inside
# features: rms norm, half, simd_sum, rsqrt, threadgroup scalar broadcast

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void rms_norm_f16(device half* out            [[buffer(0)]],
                         device const half* x        [[buffer(1)]],
                         device const half* w        [[buffer(2)]],
                         constant int& dim           [[buffer(3)]],
                         constant float& eps         [[buffer(4)]],
                         ushort tid  [[thread_index_in_threadgroup]],
                         ushort lane [[thread_index_in_simdgroup]],
                         ushort sg   [[simdgroup_index_in_threadgroup]],
                         uint row    [[threadgroup_position_in_grid]])
{
    constexpr int SIMD_GROUPS = 4;
    threadgroup float sums[SIMD_GROUPS];
    threadgroup float inv_rms;

    device const half* xr = x + row * dim;
    device half* outr = out + row * dim;

    float acc = 0;
    for (int i = tid; i < dim; i += SIMD_GROUPS * 32) {
        float v = float(xr[i]);
        acc += v * v;
    }
    acc = simd_sum(acc);
    if (lane == 0) sums[sg] = acc;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (tid == 0) {
        float total = 0;
        for (int i = 0; i < SIMD_GROUPS; i++) total += sums[i];
        inv_rms = rsqrt(total / float(dim) + eps);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (int i = tid; i < dim; i += SIMD_GROUPS * 32)
        outr[i] = half(float(xr[i]) * inv_rms * float(w[i]));
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim).half() + 0.5)

    def forward(self, x):
        x = x.contiguous()
        rows, dim = x.shape
        out = torch.empty_like(x)
        library.rms_norm_f16(out, x, self.weight, dim, 1e-6, threads=rows * 128, group_size=128, arg_casts={3: "int32"})
        return out


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim).half() + 0.5)

    def forward(self, x):
        v = x.float()
        return (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight.float()).half()


def get_inputs():
    return [torch.randn(27, 450).half()]


def get_init_inputs():
    return [450]
