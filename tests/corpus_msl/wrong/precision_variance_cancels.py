# style: one-pass variance by the mean of squares, far from zero
# features: variance, simd_sum
# bug: precision
# caught: mismatch
# line: float var = simd_sum(sq) / n - mean * mean;

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_variance(device const float* x [[buffer(0)]],
                         device float* out [[buffer(1)]],
                         constant uint& cols [[buffer(2)]],
                         uint row [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]])
{
    float sum = 0.0f, sq = 0.0f;
    for (uint c = lane; c < cols; c += 32) {
        float v = x[row * cols + c];
        sum += v;
        sq += v * v;
    }
    float n = float(cols);
    float mean = simd_sum(sum) / n;
    float var = simd_sum(sq) / n - mean * mean;
    if (lane == 0) out[row] = var;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device="mps")
        library.row_variance(x, out, cols, threads=rows * 32, group_size=32)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.var(dim=1, unbiased=False)


def get_inputs():
    return [torch.randn(16, 400) + 5000.0]


def get_init_inputs():
    return []
