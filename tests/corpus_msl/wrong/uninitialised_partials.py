# style: two-level reduction that reads 32 partial sums where only 4 were written
# features: simd_sum, threadgroup partials
# bug: uninitialised
# caught: checked
# line: float v = simd_sum(partial[lane]);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_sum(device const float* x [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    constant uint& cols [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint tid [[thread_position_in_threadgroup]],
                    uint size [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup float partial[32];
    float sum = 0.0f;
    for (uint c = tid; c < cols; c += size) sum += x[row * cols + c];
    sum = simd_sum(sum);
    if (lane == 0) partial[sg] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (sg == 0) {
        float v = simd_sum(partial[lane]);
        if (lane == 0) out[row] = v;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device="mps")
        library.row_sum(x, out, cols, threads=rows * 128, group_size=128)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(7, 500)]


def get_init_inputs():
    return []
