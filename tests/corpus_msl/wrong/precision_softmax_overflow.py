# style: softmax without taking the maximum away
# features: softmax, simd_sum
# bug: precision
# caught: mismatch
# line: total += exp(x[row * cols + c]);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void softmax(device const float* x [[buffer(0)]],
                    device float* y [[buffer(1)]],
                    constant uint& cols [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]])
{
    float total = 0.0f;
    for (uint c = lane; c < cols; c += 32) {
        total += exp(x[row * cols + c]);
    }
    total = simd_sum(total);
    for (uint c = lane; c < cols; c += 32) y[row * cols + c] = exp(x[row * cols + c]) / total;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        library.softmax(x, y, cols, threads=rows * 32, group_size=32)
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(24, 65) * 60]


def get_init_inputs():
    return []
