# style: production style, 32x32 tiles staged in threadgroup memory, four SIMD-groups, fused bias and relu
# features: simdgroup_matrix, threadgroup staging, make_filled_simdgroup_matrix, transposed weight, ragged edges

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

#define TILE 32
#define DEPTH 16

// y = relu(x @ w^T + bias); x: [M, K], w: [N, K]
kernel void linear_relu(
    device const float* x    [[buffer(0)]],
    device const float* w    [[buffer(1)]],
    device const float* bias [[buffer(2)]],
    device float* y          [[buffer(3)]],
    constant uint& M         [[buffer(4)]],
    constant uint& N         [[buffer(5)]],
    constant uint& K         [[buffer(6)]],
    uint2 tgp [[threadgroup_position_in_grid]],
    uint tid  [[thread_index_in_threadgroup]],
    uint sgid [[simdgroup_index_in_threadgroup]])
{
    threadgroup float xs[TILE * DEPTH];
    threadgroup float ws[DEPTH * TILE];
    threadgroup float ys[TILE * TILE];

    const uint row0 = tgp.y * TILE;
    const uint col0 = tgp.x * TILE;

    // SIMD-group s computes rows 16*(s/2).. and columns 16*(s%2)..
    const uint srow = (sgid / 2) * 16;
    const uint scol = (sgid % 2) * 16;

    simdgroup_float8x8 acc[2][2];
    for (uint i = 0; i < 2; ++i)
        for (uint j = 0; j < 2; ++j)
            acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

    for (uint k0 = 0; k0 < K; k0 += DEPTH) {
        for (uint i = tid; i < TILE * DEPTH; i += 128) {
            uint r = i / DEPTH;
            uint k = i % DEPTH;
            xs[r * DEPTH + k] = (row0 + r < M && k0 + k < K) ? x[(row0 + r) * K + k0 + k] : 0.0f;
            // transposed on the way in
            ws[k * TILE + r] = (col0 + r < N && k0 + k < K) ? w[(col0 + r) * K + k0 + k] : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);

        for (uint k = 0; k < DEPTH; k += 8) {
            simdgroup_float8x8 a[2];
            simdgroup_float8x8 b[2];
            for (uint i = 0; i < 2; ++i) {
                simdgroup_load(a[i], xs + (srow + i * 8) * DEPTH + k, DEPTH);
                simdgroup_load(b[i], ws + k * TILE + scol + i * 8, TILE);
            }
            for (uint i = 0; i < 2; ++i)
                for (uint j = 0; j < 2; ++j)
                    simdgroup_multiply_accumulate(acc[i][j], a[i], b[j], acc[i][j]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    for (uint i = 0; i < 2; ++i)
        for (uint j = 0; j < 2; ++j)
            simdgroup_store(acc[i][j], ys + (srow + i * 8) * TILE + scol + j * 8, TILE);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint i = tid; i < TILE * TILE; i += 128) {
        uint r = row0 + i / TILE;
        uint c = col0 + i % TILE;
        if (r < M && c < N) {
            y[r * N + c] = max(ys[i] + bias[c], 0.0f);
        }
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        x = x.contiguous()
        m, k = x.shape
        n = self.linear.out_features
        y = torch.empty(m, n, device="mps", dtype=torch.float32)
        grid = ((n + 31) // 32 * 128, (m + 31) // 32)
        library.linear_relu(x, self.linear.weight, self.linear.bias, y, m, n, k, threads=grid, group_size=(128, 1))
        return y


class Model(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(45, 50)]


def get_init_inputs():
    return [50, 75]
