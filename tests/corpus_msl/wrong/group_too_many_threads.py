# style: one threadgroup of 2048 threads, as if there were no limit
# features: group size limit
# bug: dispatch size
# caught: either
# line: library.double_it(x, y, threads=x.numel(), group_size=2048)

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void double_it(device const float* x [[buffer(0)]],
                      device float* y [[buffer(1)]],
                      uint gid [[thread_position_in_grid]])
{
    y[gid] = 2.0f * x[gid];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.double_it(x, y, threads=x.numel(), group_size=2048)
        return y


class Model(nn.Module):
    def forward(self, x):
        return 2.0 * x


def get_inputs():
    return [torch.randn(2, 2048)]


def get_init_inputs():
    return []
