# style: shuffle reduction that begins at 8 and leaves half of the lanes out
# features: simd_shuffle_down
# bug: wrong index
# caught: mismatch
# line: for (ushort d = 8; d > 0; d >>= 1) acc += simd_shuffle_down(acc, d);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_sum(device const float* x [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    constant uint& cols [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]])
{
    float acc = 0.0f;
    for (uint c = lane; c < cols; c += 32) acc += x[row * cols + c];
    for (ushort d = 8; d > 0; d >>= 1) acc += simd_shuffle_down(acc, d);
    if (lane == 0) out[row] = acc;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device)
        library.row_sum(x, out, cols, threads=rows * 32, group_size=32)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.rand(20, 90)]


def get_init_inputs():
    return []
