# style: numerically careful, three passes over the row, comments on each step
# features: softmax, threadgroup tree, max and sum reduction, INFINITY

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

constant constexpr uint THREADS = 128;

kernel void softmax_rows(device const float* input [[buffer(0)]],
                         device float* output [[buffer(1)]],
                         constant uint& dim [[buffer(2)]],
                         uint tid [[thread_index_in_threadgroup]],
                         uint row [[threadgroup_position_in_grid]])
{
    threadgroup float scratch[THREADS];

    device const float* in_row = input + row * dim;
    device float* out_row = output + row * dim;

    // 1. maximum of the row
    float local_max = -INFINITY;
    for (uint i = tid; i < dim; i += THREADS) {
        local_max = max(local_max, in_row[i]);
    }
    scratch[tid] = local_max;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint offset = THREADS / 2; offset > 0; offset /= 2) {
        if (tid < offset) {
            scratch[tid] = max(scratch[tid], scratch[tid + offset]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float row_max = scratch[0];
    // everyone has read scratch[0] before it is written again
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // 2. sum of exponentials
    float local_sum = 0.0f;
    for (uint i = tid; i < dim; i += THREADS) {
        local_sum += exp(in_row[i] - row_max);
    }
    scratch[tid] = local_sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint offset = THREADS / 2; offset > 0; offset /= 2) {
        if (tid < offset) {
            scratch[tid] += scratch[tid + offset];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float inv_sum = 1.0f / scratch[0];

    // 3. normalise
    for (uint i = tid; i < dim; i += THREADS) {
        out_row[i] = exp(in_row[i] - row_max) * inv_sum;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        dim = x.shape[-1]
        rows = x.numel() // dim
        out = torch.empty_like(x)
        library.softmax_rows(x, out, dim, threads=rows * 128, group_size=128)
        return out


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(4, 9, 333) * 5]


def get_init_inputs():
    return []
