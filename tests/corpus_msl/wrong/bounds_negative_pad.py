# style: direct convolution, the upper border checked and the lower one forgotten
# features: conv1d, padding
# bug: out-of-bounds
# caught: either
# line: if (p < n) acc += x[p] * w[k];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void conv1d_same(device const float* x [[buffer(0)]],
                        device const float* w [[buffer(1)]],
                        device float* y [[buffer(2)]],
                        constant int& n [[buffer(3)]],
                        uint i [[thread_position_in_grid]])
{
    if (int(i) >= n) return;
    float acc = 0.0f;
    for (int k = 0; k < 7; ++k) {
        int p = int(i) + k - 3;
        if (p < n) acc += x[p] * w[k];
    }
    y[i] = acc;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 1, 7))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        library.conv1d_same(x, self.weight, y, n, threads=n, group_size=128, arg_casts="int32")
        return y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 1, 7))

    def forward(self, x):
        return torch.nn.functional.conv1d(x[None, None], self.weight, padding=3)[0, 0]


def get_inputs():
    return [torch.randn(900)]


def get_init_inputs():
    return []
