# style: textbook shared-memory matmul, the barrier at the end of the loop forgotten
# features: tiled matmul
# bug: missing barrier
# caught: checked
# line: sum += As[tid.y][k] * Bs[k][tid.x];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void matmul(device const float* A [[buffer(0)]],
                   device const float* B [[buffer(1)]],
                   device float* C [[buffer(2)]],
                   constant uint& N [[buffer(3)]],
                   constant uint& K [[buffer(4)]],
                   uint2 tid [[thread_position_in_threadgroup]],
                   uint2 gid [[thread_position_in_grid]])
{
    threadgroup float As[16][16];
    threadgroup float Bs[16][16];
    uint row = gid.y, col = gid.x;
    float sum = 0.0f;
    for (uint t = 0; t < K / 16; ++t) {
        As[tid.y][tid.x] = A[row * K + t * 16 + tid.x];
        Bs[tid.y][tid.x] = B[(t * 16 + tid.y) * N + col];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < 16; ++k) sum += As[tid.y][k] * Bs[k][tid.x];
    }
    C[row * N + col] = sum;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        m, k = a.shape
        n = b.shape[1]
        c = torch.empty(m, n, device=a.device)
        library.matmul(a, b, c, n, k, threads=(n, m), group_size=(16, 16))
        return c


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(32, 64), torch.randn(64, 48)]


def get_init_inputs():
    return []
