# style: naive matmul reading the second operand as if it were transposed
# features: matmul, 2D dispatch
# bug: wrong index
# caught: mismatch
# line: acc += a[row * size + k] * b[col * size + k];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void matmul_square(device const float* a [[buffer(0)]],
                          device const float* b [[buffer(1)]],
                          device float* c [[buffer(2)]],
                          constant uint& size [[buffer(3)]],
                          uint2 gid [[thread_position_in_grid]])
{
    uint col = gid.x;
    uint row = gid.y;
    if (row >= size || col >= size) return;
    float acc = 0.0f;
    for (uint k = 0; k < size; ++k) {
        acc += a[row * size + k] * b[col * size + k];
    }
    c[row * size + col] = acc;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        size = a.shape[0]
        c = torch.empty_like(a)
        grid = (size + 7) // 8 * 8
        library.matmul_square(a, b, c, size, threads=(grid, grid), group_size=(8, 8))
        return c


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(45, 45), torch.randn(45, 45)]


def get_init_inputs():
    return []
