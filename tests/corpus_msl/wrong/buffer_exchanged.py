# style: two arguments in the wrong order
# features: buffer numbers, const pointers
# bug: wrong buffer
# caught: mismatch
# line: library.blend(a, b, out, 0.25, threads=a.numel(), group_size=64)

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void blend(device const float* b [[buffer(0)]],
                  device const float* a [[buffer(1)]],
                  device float* out [[buffer(2)]],
                  constant float& t [[buffer(3)]],
                  uint gid [[thread_position_in_grid]])
{
    out[gid] = mix(a[gid], b[gid], t);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        library.blend(a, b, out, 0.25, threads=a.numel(), group_size=64)
        return out


class Model(nn.Module):
    def forward(self, a, b):
        return torch.lerp(a, b, 0.25)


def get_inputs():
    return [torch.randn(10, 64), torch.randn(10, 64)]


def get_init_inputs():
    return []
