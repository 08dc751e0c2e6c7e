# style: one-dimensional stencil, the tile too short for its halo
# features: threadgroup tile, halo
# bug: out-of-bounds
# caught: checked
# line: if (lid == 63) tile[lid + 2] = gid + 1 < n ? x[gid + 1] : 0.0f;

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void smooth3(device const float* x [[buffer(0)]],
                    device float* y [[buffer(1)]],
                    constant uint& n [[buffer(2)]],
                    uint gid [[thread_position_in_grid]],
                    uint lid [[thread_position_in_threadgroup]])
{
    threadgroup float tile[65];
    tile[lid + 1] = gid < n ? x[gid] : 0.0f;
    if (lid == 0) tile[0] = gid > 0 ? x[gid - 1] : 0.0f;
    if (lid == 63) tile[lid + 2] = gid + 1 < n ? x[gid + 1] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (gid < n) y[gid] = (tile[lid] + tile[lid + 1] + tile[lid + 2]) / 3.0f;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        library.smooth3(x, y, n, threads=(n + 63) // 64 * 64, group_size=64)
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.avg_pool1d(x[None, None], 3, stride=1, padding=1)[0, 0]


def get_inputs():
    return [torch.randn(777)]


def get_init_inputs():
    return []
