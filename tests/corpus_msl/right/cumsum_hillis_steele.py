# style: textbook scan, two threadgroup buffers swapped in each step
# features: inclusive scan, threadgroup pointers swapped, log2 steps, ragged row

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

constant uint MAX_COLS = 512;

kernel void scan_rows(device const float* x [[buffer(0)]],
                      device float* y [[buffer(1)]],
                      constant uint& n [[buffer(2)]],
                      uint tid [[thread_position_in_threadgroup]],
                      uint row [[threadgroup_position_in_grid]])
{
    threadgroup float buffer_a[MAX_COLS];
    threadgroup float buffer_b[MAX_COLS];
    threadgroup float* src = buffer_a;
    threadgroup float* dst = buffer_b;

    src[tid] = tid < n ? x[row * n + tid] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint d = 1; d < n; d <<= 1) {
        dst[tid] = tid >= d ? src[tid] + src[tid - d] : src[tid];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        threadgroup float* tmp = src;
        src = dst;
        dst = tmp;
    }
    if (tid < n) y[row * n + tid] = src[tid];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        y = torch.empty_like(x)
        library.scan_rows(x, y, n, threads=rows * 512, group_size=512)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x.cumsum(-1)


def get_inputs():
    return [torch.randn(9, 389)]


def get_init_inputs():
    return []
