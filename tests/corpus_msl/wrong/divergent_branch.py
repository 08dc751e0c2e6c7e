# style: the barrier moved into the branch of a tree reduction
# features: threadgroup tree reduction
# bug: divergent barrier
# caught: either
# line: threadgroup_barrier(mem_flags::mem_threadgroup);  // each level

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_max(device const float* x [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    constant uint& cols [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint lid [[thread_position_in_threadgroup]])
{
    threadgroup float best[64];
    float m = -INFINITY;
    for (uint c = lid; c < cols; c += 64) m = max(m, x[row * cols + c]);
    best[lid] = m;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = 32; s > 0; s >>= 1) {
        if (lid < s) {
            best[lid] = max(best[lid], best[lid + s]);
            threadgroup_barrier(mem_flags::mem_threadgroup);  // each level
        }
    }
    if (lid == 0) out[row] = best[0];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device)
        library.row_max(x, out, cols, threads=rows * 64, group_size=64)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.amax(1)


def get_inputs():
    return [torch.randn(9, 150)]


def get_init_inputs():
    return []
