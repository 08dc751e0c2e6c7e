# style: layer norm with the variance divided by n - 1
# features: layer norm, simd_sum
# bug: wrong formula
# caught: mismatch
# line: float var = simd_sum(sq) / float(cols - 1);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void layer_norm(device const float* x [[buffer(0)]],
                       device float* y [[buffer(1)]],
                       constant uint& cols [[buffer(2)]],
                       constant float& eps [[buffer(3)]],
                       uint row [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]])
{
    device const float* xr = x + row * cols;
    float sum = 0.0f;
    for (uint c = lane; c < cols; c += 32) sum += xr[c];
    float mean = simd_sum(sum) / float(cols);
    float sq = 0.0f;
    for (uint c = lane; c < cols; c += 32) sq += (xr[c] - mean) * (xr[c] - mean);
    float var = simd_sum(sq) / float(cols - 1);
    for (uint c = lane; c < cols; c += 32) y[row * cols + c] = (xr[c] - mean) * rsqrt(var + eps);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        library.layer_norm(x, y, cols, 1e-5, threads=rows * 32, group_size=32)
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-5)


def get_inputs():
    return [torch.randn(18, 24)]


def get_init_inputs():
    return []
