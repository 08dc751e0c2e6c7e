# style: shuffle inside a branch that some lanes do not take
# features: simd_shuffle_down, divergence
# bug: inactive lane
# caught: either
# line: float right = simd_shuffle_down(v, 1);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

// y[i] = x[i] + x[i + 1] for even i, x[i] for odd i
kernel void pair_sum(device const float* x [[buffer(0)]],
                     device float* y [[buffer(1)]],
                     uint i [[thread_position_in_grid]])
{
    float v = x[i];
    if ((i & 1u) == 0u) {
        float right = simd_shuffle_down(v, 1);
        v += right;
    }
    y[i] = v;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.pair_sum(x, y, threads=x.numel(), group_size=64)
        return y


class Model(nn.Module):
    def forward(self, x):
        pairs = x.reshape(-1, 2)
        return torch.stack([pairs.sum(1), pairs[:, 1]], dim=1).reshape(x.shape)


def get_inputs():
    return [torch.randn(12, 64)]


def get_init_inputs():
    return []
