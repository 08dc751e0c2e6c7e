# style: helper function that reduces over the threadgroup, scratch passed as a pointer
# features: layer norm, simd_sum, threadgroup pointer argument, rsqrt, float4 row

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

// Sum over all threads of the threadgroup; every thread gets the result.
static float threadgroup_sum(float value, threadgroup float* scratch, uint lane, uint warp, uint warps) {
    value = simd_sum(value);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) {
        scratch[warp] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = lane < warps ? scratch[lane] : 0.0f;
    return simd_sum(value);
}

kernel void layer_norm(
    device const float4* x      [[buffer(0)]],
    device const float4* weight [[buffer(1)]],
    device const float4* bias   [[buffer(2)]],
    device float4* y            [[buffer(3)]],
    constant uint& dim4         [[buffer(4)]],
    constant float& eps         [[buffer(5)]],
    uint row   [[threadgroup_position_in_grid]],
    uint tid   [[thread_position_in_threadgroup]],
    uint count [[threads_per_threadgroup]],
    uint lane  [[thread_index_in_simdgroup]],
    uint warp  [[simdgroup_index_in_threadgroup]],
    uint warps [[simdgroups_per_threadgroup]])
{
    threadgroup float scratch[32];
    x += row * dim4;
    y += row * dim4;
    const float n = float(dim4 * 4);

    float sum = 0.0f;
    for (uint i = tid; i < dim4; i += count) {
        float4 v = x[i];
        sum += v.x + v.y + v.z + v.w;
    }
    const float mean = threadgroup_sum(sum, scratch, lane, warp, warps) / n;

    float sq = 0.0f;
    for (uint i = tid; i < dim4; i += count) {
        float4 d = x[i] - mean;
        sq += dot(d, d);
    }
    const float rstd = rsqrt(threadgroup_sum(sq, scratch, lane, warp, warps) / n + eps);

    for (uint i = tid; i < dim4; i += count) {
        y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        dim = x.shape[-1]
        rows = x.numel() // dim
        y = torch.empty_like(x)
        library.layer_norm(
            x,
            self.norm.weight,
            self.norm.bias,
            y,
            dim // 4,
            self.norm.eps,
            threads=rows * 96,
            group_size=96,
        )
        return y


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(3, 13, 500) * 2 + 1]


def get_init_inputs():
    return [500]
