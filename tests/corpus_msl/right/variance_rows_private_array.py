# style: each thread keeps its values in registers between the two passes
# features: private array, unrolled loops, ushort loop index, simd_sum, variance

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

#define PER_LANE 8

kernel void row_variance(device const float* x [[buffer(0)]],
                         device float* out [[buffer(1)]],
                         constant uint& cols [[buffer(2)]],
                         uint gid [[thread_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]])
{
    const uint row = gid >> 5;
    thread float cache[PER_LANE];

    float total = 0.0f;
    #pragma unroll
    for (ushort i = 0; i < PER_LANE; ++i) {
        const uint c = i * 32 + lane;
        cache[i] = c < cols ? x[row * cols + c] : 0.0f;
        total += cache[i];
    }
    const float mean = simd_sum(total) / cols;

    float sq = 0.0f;
    #pragma unroll
    for (ushort i = 0; i < PER_LANE; ++i) {
        const float d = cache[i] - mean;
        sq += (i * 32 + lane < cols) ? d * d : 0.0f;
    }
    const float var = simd_sum(sq) / (cols - 1);
    if (lane == 0) out[row] = var;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        assert cols <= 256
        out = torch.empty(rows, device=x.device)
        library.row_variance(x, out, cols, threads=rows * 32, group_size=32)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.var(dim=1)


def get_inputs():
    return [torch.randn(44, 231) * 3]


def get_init_inputs():
    return []
