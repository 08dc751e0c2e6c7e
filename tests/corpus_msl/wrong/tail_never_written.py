# style: vectorised body without the tail
# features: float4, tail
# bug: dispatch size
# caught: mismatch
# line: n4 = x.numel() // 4

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void shift4(device const float4* x [[buffer(0)]],
                   device float4* y [[buffer(1)]],
                   uint gid [[thread_position_in_grid]])
{
    y[gid] = x[gid] + 100.0f;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros_like(x)
        n4 = x.numel() // 4
        library.shift4(x, y, threads=n4, group_size=32)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x + 100.0


def get_inputs():
    return [torch.randn(15, 17)]


def get_init_inputs():
    return []
