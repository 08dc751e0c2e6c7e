# style: ridge regression's matrix, the accumulator begins as a scaled identity
# features: simdgroup_float8x8 as a diagonal matrix, thread_elements, simdgroup_load with transpose, ternary on tiles

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// G = (X^T X + ridge * I) / M, X: [M, N], M and N multiples of 8
kernel void gram(device const float* X [[buffer(0)]],
                 device float* G [[buffer(1)]],
                 constant uint& M [[buffer(2)]],
                 constant uint& N [[buffer(3)]],
                 constant float& ridge [[buffer(4)]],
                 uint2 tile [[threadgroup_position_in_grid]])
{
    const uint row = tile.y * 8;
    const uint col = tile.x * 8;

    // a matrix made from one value holds it on the diagonal
    simdgroup_float8x8 acc = simdgroup_float8x8(row == col ? ridge : 0.0f);
    for (uint m = 0; m < M; m += 8) {
        simdgroup_float8x8 left, right;
        simdgroup_load(left, X + m * N + row, N, 0, true);
        simdgroup_load(right, X + m * N + col, N);
        simdgroup_multiply_accumulate(acc, left, right, acc);
    }
    // each lane holds two elements, whichever they are
    acc.thread_elements()[0] /= float(M);
    acc.thread_elements()[1] /= float(M);
    simdgroup_store(acc, G + row * N + col, N);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        m, n = x.shape
        gram = torch.empty(n, n, device=x.device)
        library.gram(x, gram, m, n, 3.0, threads=(n // 8 * 32, n // 8), group_size=(32, 1))
        return gram


class Model(nn.Module):
    def forward(self, x):
        return (x.t() @ x + 3.0 * torch.eye(x.shape[1], device=x.device)) / x.shape[0]


def get_inputs():
    return [torch.randn(64, 40)]


def get_init_inputs():
    return []
