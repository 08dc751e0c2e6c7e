# style: scan in one buffer, as if all threads went in step
# features: inclusive scan, threadgroup memory
# bug: missing barrier
# caught: checked
# line: if (tid >= d) data[tid] += data[tid - d];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void scan(device const float* x [[buffer(0)]],
                 device float* y [[buffer(1)]],
                 uint tid [[thread_position_in_threadgroup]],
                 uint gid [[thread_position_in_grid]])
{
    threadgroup float data[256];
    data[tid] = x[gid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint d = 1; d < 256; d *= 2) {
        if (tid >= d) data[tid] += data[tid - d];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    y[gid] = data[tid];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.scan(x, y, threads=x.numel(), group_size=256)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x.cumsum(1)


def get_inputs():
    return [torch.rand(6, 256)]


def get_init_inputs():
    return []
