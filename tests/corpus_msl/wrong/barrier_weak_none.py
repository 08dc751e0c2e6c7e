# style: barrier without a memory flag, execution only
# features: threadgroup memory, reversal
# bug: weak barrier
# caught: checked
# line: y[gid] = data[127 - tid];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void reverse_rows(device const float* x [[buffer(0)]],
                         device float* y [[buffer(1)]],
                         uint tid [[thread_position_in_threadgroup]],
                         uint gid [[thread_position_in_grid]])
{
    threadgroup float data[128];
    data[tid] = x[gid];
    threadgroup_barrier(mem_flags::mem_none);
    y[gid] = data[127 - tid];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.reverse_rows(x, y, threads=x.numel(), group_size=128)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x.flip(1)


def get_inputs():
    return [torch.randn(15, 128)]


def get_init_inputs():
    return []
