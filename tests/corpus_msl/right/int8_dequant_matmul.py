# style: weight-only quantised linear, int8 weights with one scale per row
# features: char4, int8 tensor, dequantise, simd_sum, float4 conversion

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void linear_w8(device const float* x     [[buffer(0)]],
                      device const char* weight [[buffer(1)]],
                      device const float* scale [[buffer(2)]],
                      device float* y           [[buffer(3)]],
                      constant uint& K          [[buffer(4)]],
                      constant uint& N          [[buffer(5)]],
                      uint2 tg   [[threadgroup_position_in_grid]],
                      uint2 lid  [[thread_position_in_threadgroup]])
{
    // lid.x is the lane, tg.x the output feature, tg.y the row of x
    device const char4* w4 = (device const char4*)(weight + tg.x * K);
    device const float4* x4 = (device const float4*)(x + tg.y * K);

    float acc = 0.0f;
    for (uint i = lid.x; i < K / 4; i += 32) {
        acc += dot(float4(w4[i]), x4[i]);
    }
    acc = simd_sum(acc);
    if (lid.x == 0) y[tg.y * N + tg.x] = acc * scale[tg.x];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x, weight, scale):
        x, weight, scale = x.contiguous(), weight.contiguous(), scale.contiguous()
        rows, k = x.shape
        n = weight.shape[0]
        y = torch.empty(rows, n, device=x.device)
        library.linear_w8(x, weight, scale, y, k, n, threads=(n * 32, rows), group_size=(32, 1))
        return y


class Model(nn.Module):
    def forward(self, x, weight, scale):
        return x @ (weight.float() * scale[:, None]).t()


def get_inputs():
    return [
        torch.randn(9, 148),
        torch.randint(-127, 128, (70, 148), dtype=torch.int8),
        torch.rand(70) * 0.02,
    ]


def get_init_inputs():
    return []
