# style: rotary embedding, angle computed in the kernel
# features: sincos, exp2, float2 pairs, 3D dispatch, precise math

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void rope(device const float2* x [[buffer(0)]],
                 device float2* y [[buffer(1)]],
                 constant float& log2_theta [[buffer(2)]],
                 uint3 pos [[thread_position_in_grid]],
                 uint3 grid [[threads_per_grid]])
{
    // pos.x: pair inside the head, pos.y: position in the sequence, pos.z: batch * heads
    float inv_freq = precise::exp2(-float(pos.x) / float(grid.x) * log2_theta);
    float angle = float(pos.y) * inv_freq;
    float c;
    float s = precise::sincos(angle, c);

    uint index = (pos.z * grid.y + pos.y) * grid.x + pos.x;
    float2 v = x[index];
    y[index] = float2(v.x * c - v.y * s, v.x * s + v.y * c);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, heads, seq, dim = x.shape
        y = torch.empty_like(x)
        library.rope(x, y, 13.287712379549449, threads=(dim // 2, seq, batch * heads), group_size=(16, 4, 1))
        return y


class Model(nn.Module):
    def forward(self, x):
        seq, dim = x.shape[-2:]
        frequency = 10000.0 ** (-torch.arange(0, dim, 2, device=x.device).float() / dim)
        angle = torch.arange(seq, device=x.device).float()[:, None] * frequency
        c, s = angle.cos(), angle.sin()
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * c - b * s, a * s + b * c], dim=-1).flatten(-2)


def get_inputs():
    return [torch.randn(2, 3, 29, 48)]


def get_init_inputs():
    return []
