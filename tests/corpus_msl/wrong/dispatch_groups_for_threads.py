# style: ported from CUDA, the number of blocks given where threads are counted
# features: elementwise, dispatch
# bug: dispatch size
# caught: mismatch
# line: library.add(a, b, out, n, threads=(n + 255) // 256, group_size=256)

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void add(device const float* a [[buffer(0)]],
                device const float* b [[buffer(1)]],
                device float* out [[buffer(2)]],
                constant uint& n [[buffer(3)]],
                uint gid [[thread_position_in_grid]])
{
    if (gid < n) out[gid] = a[gid] + b[gid];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.zeros_like(a)
        n = a.numel()
        library.add(a, b, out, n, threads=(n + 255) // 256, group_size=256)
        return out


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs():
    return [torch.randn(40, 50), torch.randn(40, 50)]


def get_init_inputs():
    return []
