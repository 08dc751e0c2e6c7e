# style: all threads add to one place without an atomic
# features: reduction, device memory
# bug: race
# caught: checked
# line: out[gid % columns] += x[gid];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void column_sum(device const float* x [[buffer(0)]],
                       device float* out [[buffer(1)]],
                       constant uint& columns [[buffer(2)]],
                       uint gid [[thread_position_in_grid]])
{
    out[gid % columns] += x[gid];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[1]
        out = torch.zeros(columns, device="mps")
        library.column_sum(x, out, columns, threads=x.numel(), group_size=256)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum(0)


def get_inputs():
    return [torch.rand(130, 16)]


def get_init_inputs():
    return []
