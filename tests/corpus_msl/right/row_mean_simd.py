# style: one threadgroup per row, two-level simd reduction
# features: simd_sum, simdgroup index attributes, threadgroup partials

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_mean(
    device const float* x [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant uint& cols [[buffer(2)]],
    uint row [[threadgroup_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]],
    uint tg_size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint sg [[simdgroup_index_in_threadgroup]],
    uint num_sg [[simdgroups_per_threadgroup]])
{
    threadgroup float partial[32];
    device const float* xr = x + row * cols;

    float sum = 0.0f;
    for (uint c = tid; c < cols; c += tg_size) sum += xr[c];

    sum = simd_sum(sum);
    if (lane == 0) partial[sg] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (sg == 0) {
        float v = lane < num_sg ? partial[lane] : 0.0f;
        v = simd_sum(v);
        if (lane == 0) out[row] = v / float(cols);
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device="mps")
        library.row_mean(x, out, cols, threads=rows * 256, group_size=256)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=-1)


def get_inputs():
    return [torch.randn(29, 611)]


def get_init_inputs():
    return []
