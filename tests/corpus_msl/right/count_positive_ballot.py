# style: vote style, one bit per lane
# features: simd_ballot, simd_vote, popcount, one SIMD-group per row

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void count_positive(device const float* x [[buffer(0)]],
                           device int* counts [[buffer(1)]],
                           constant uint& cols [[buffer(2)]],
                           uint row [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]])
{
    uint count = 0;
    uint steps = (cols + 31) / 32;
    for (uint s = 0; s < steps; ++s) {
        uint c = s * 32 + lane;
        bool positive = c < cols && x[row * cols + c] > 0.0f;
        ulong mask = ulong(simd_vote::vote_t(simd_ballot(positive)));
        count += popcount(uint(mask));
    }
    if (lane == 0) counts[row] = int(count);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        counts = torch.empty(rows, dtype=torch.int32, device=x.device)
        library.count_positive(x, counts, cols, threads=rows * 32, group_size=32)
        return counts


class Model(nn.Module):
    def forward(self, x):
        return (x > 0).sum(1).int()


def get_inputs():
    return [torch.randn(37, 115)]


def get_init_inputs():
    return []
