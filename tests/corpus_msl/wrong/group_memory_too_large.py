# style: a tile as large as it would be on another device
# features: threadgroup memory limit
# bug: threadgroup memory
# caught: either
# line: threadgroup float tile[96][96];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void transpose96(device const float* in [[buffer(0)]],
                        device float* out [[buffer(1)]],
                        uint2 lid [[thread_position_in_threadgroup]])
{
    threadgroup float tile[96][96];
    for (uint r = lid.y; r < 96; r += 8)
        for (uint c = lid.x; c < 96; c += 32) tile[r][c] = in[r * 96 + c];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = lid.y; r < 96; r += 8)
        for (uint c = lid.x; c < 96; c += 32) out[r * 96 + c] = tile[c][r];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        library.transpose96(x, out, threads=(32, 8), group_size=(32, 8))
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(96, 96)]


def get_init_inputs():
    return []
