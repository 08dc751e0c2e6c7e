# style: float4 over a row whose length is not a multiple of four
# features: float4, row offset
# bug: out-of-bounds
# caught: checked
# line: float4 v = x[gid];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void square4(device const float4* x [[buffer(0)]],
                    device float4* y [[buffer(1)]],
                    constant uint& n [[buffer(2)]],
                    uint gid [[thread_position_in_grid]])
{
    if (gid * 4 >= n) return;
    float4 v = x[gid];
    y[gid] = v * v;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        library.square4(x, y, n, threads=(n + 3) // 4, group_size=64)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x * x


def get_inputs():
    return [torch.randn(17, 29)]


def get_init_inputs():
    return []
