# style: mixed precision, half operands and float accumulators, transposed load
# features: simdgroup_half8x8, simdgroup_float8x8, simdgroup_load with transpose, simdgroup_matrix template

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// C[M, N] = A[M, K] * B[N, K]^T
kernel void hgemm_nt(device const half* A [[buffer(0)]],
                     device const half* B [[buffer(1)]],
                     device float* C [[buffer(2)]],
                     constant uint& N [[buffer(3)]],
                     constant uint& K [[buffer(4)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint simd_id [[simdgroup_index_in_threadgroup]])
{
    // two SIMD-groups side by side
    uint row = group.y * 8;
    uint col = group.x * 16 + simd_id * 8;

    simdgroup_matrix<float, 8, 8> total(0.0f);
    simdgroup_half8x8 a, bt;
    for (uint k = 0; k < K; k += 8) {
        simdgroup_load(a, A, K, ulong2(k, row));
        simdgroup_load(bt, B + col * K + k, K, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(total, a, bt, total);
    }
    simdgroup_store(total, C, N, ulong2(col, row));
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        m, k = a.shape
        n = b.shape[0]
        c = torch.empty(m, n, dtype=torch.float32, device="mps")
        library.hgemm_nt(a, b, c, n, k, threads=(n // 16 * 64, m // 8), group_size=(64, 1))
        return c


class Model(nn.Module):
    def forward(self, a, b):
        return a.float() @ b.float().t()


def get_inputs():
    return [torch.randn(40, 24).half(), torch.randn(48, 24).half()]


def get_init_inputs():
    return []
