# style: half4 pointers as kernel arguments, float in the middle
# features: half4, vector conversion, exp on vectors, 16-bit tensors

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void silu_half4(device const half4* x [[buffer(0)]],
                       device half4* y [[buffer(1)]],
                       constant uint& n4 [[buffer(2)]],
                       uint gid [[thread_position_in_grid]]) {
    if (gid >= n4) return;
    float4 v = float4(x[gid]);
    float4 s = 1.0f / (1.0f + exp(-v));
    y[gid] = half4(v * s);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n4 = x.numel() // 4
        library.silu_half4(x, y, n4, threads=n4, group_size=min(256, n4))
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(33, 124).half()]


def get_init_inputs():
    return []
