# style: neighbour values by shuffles, memory only at the SIMD-group's edge
# features: simd_shuffle_up, simd_shuffle_and_fill_down, backward and forward difference

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

// out[0] = x[i] - x[i-1] (0 at the start), out[1] = x[i+1] - x[i] (0 at the end)
kernel void differences(device const float* x [[buffer(0)]],
                        device float2* out [[buffer(1)]],
                        constant uint& n [[buffer(2)]],
                        uint i [[thread_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]])
{
    const bool valid = i < n;
    const float v = valid ? x[i] : 0.0f;

    // what the last lane needs from the next SIMD-group
    const uint next = (i / 32 + 1) * 32;
    const float edge = next < n ? x[next] : 0.0f;

    float left = simd_shuffle_up(v, 1);
    float right = simd_shuffle_and_fill_down(v, edge, 1);
    if (lane == 0 && i > 0 && valid) left = x[i - 1];

    if (!valid) return;
    out[i] = float2(i > 0 ? v - left : 0.0f, i + 1 < n ? right - v : 0.0f);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        out = torch.empty(n, 2, device="mps")
        library.differences(x, out, n, threads=(n + 63) // 64 * 64, group_size=64)
        return out


class Model(nn.Module):
    def forward(self, x):
        steps = x[1:] - x[:-1]
        zero = torch.zeros(1, device=x.device)
        return torch.stack([torch.cat([zero, steps]), torch.cat([steps, zero])], dim=1)


def get_inputs():
    return [torch.randn(1235)]


def get_init_inputs():
    return []
