# style: vectorised body with a scalar tail in the same kernel
# features: float4, reinterpreted pointers, max on vectors, tail

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void relu_scale_vec4(
    device const float* x     [[buffer(0)]],
    device float*       y     [[buffer(1)]],
    constant float&     scale [[buffer(2)]],
    constant long&      n     [[buffer(3)]],
    uint tid [[thread_position_in_grid]])
{
    long base = long(tid) * 4;
    if (base + 3 < n) {
        float4 v = *reinterpret_cast<device const float4*>(x + base);
        v = max(v, float4(0.0f)) * scale;
        *reinterpret_cast<device float4*>(y + base) = v;
    } else {
        for (long i = base; i < n; ++i) {
            y[i] = max(x[i], 0.0f) * scale;
        }
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = float(scale)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        library.relu_scale_vec4(x, y, self.scale, n, threads=(n + 3) // 4, group_size=64)
        return y


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = float(scale)

    def forward(self, x):
        return torch.relu(x) * self.scale


def get_inputs():
    return [torch.randn(51, 77)]


def get_init_inputs():
    return [0.25]
