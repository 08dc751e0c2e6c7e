# style: the wrong memory flag, device memory fenced where threadgroup memory was shared
# features: threadgroup memory, simd_max two-level
# bug: weak barrier
# caught: checked
# line: float best = lane < sgs ? partial[lane] : -INFINITY;

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_max(device const float* x [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    constant uint& cols [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint tid [[thread_position_in_threadgroup]],
                    uint size [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint sg [[simdgroup_index_in_threadgroup]],
                    uint sgs [[simdgroups_per_threadgroup]])
{
    threadgroup float partial[32];
    float m = -INFINITY;
    for (uint c = tid; c < cols; c += size) m = max(m, x[row * cols + c]);
    m = simd_max(m);
    if (lane == 0) partial[sg] = m;
    threadgroup_barrier(mem_flags::mem_device);
    if (sg == 0) {
        float best = lane < sgs ? partial[lane] : -INFINITY;
        best = simd_max(best);
        if (lane == 0) out[row] = best;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device)
        library.row_max(x, out, cols, threads=rows * 128, group_size=128)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.amax(1)


def get_inputs():
    return [torch.randn(8, 333)]


def get_init_inputs():
    return []
