# style: one helper for each address space, under the same name
# features: overloads by address space, METAL_FUNC, threadgroup float4 tile, dot, two-stage sum

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

METAL_FUNC float sum_of_squares(device const float4* p, uint i) {
    return dot(p[i], p[i]);
}

METAL_FUNC float sum_of_squares(threadgroup const float4* p, uint i) {
    return dot(p[i], p[i]);
}

kernel void l2_normalize(device const float4* x [[buffer(0)]],
                         device float4* y [[buffer(1)]],
                         constant uint& cols4 [[buffer(2)]],
                         uint row [[threadgroup_position_in_grid]],
                         uint lane [[thread_position_in_threadgroup]])
{
    // the first 32 vectors of the row are kept, the others are read twice
    threadgroup float4 kept[32];
    device const float4* in = x + row * cols4;
    if (lane < cols4) kept[lane] = in[lane];
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float sq = lane < cols4 ? sum_of_squares(kept, lane) : 0.0f;
    for (uint i = lane + 32; i < cols4; i += 32) sq += sum_of_squares(in, i);
    const float inv = rsqrt(max(simd_sum(sq), 1e-24f));

    for (uint i = lane; i < cols4; i += 32) {
        float4 v;
        if (i < 32) v = kept[i];
        else v = in[i];
        y[row * cols4 + i] = v * inv;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        library.l2_normalize(x, y, cols // 4, threads=rows * 32, group_size=32)
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.normalize(x, dim=1)


def get_inputs():
    return [torch.randn(22, 212)]


def get_init_inputs():
    return []
