# style: naive, 3D dispatch with one output element per thread
# features: batched matmul, 3D dispatch, uint3, long dimensions in an array

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void bmm_bias(device const float* a [[buffer(0)]],
                     device const float* b [[buffer(1)]],
                     device const float* bias [[buffer(2)]],
                     device float* c [[buffer(3)]],
                     constant long* dims [[buffer(4)]],
                     uint3 g [[thread_position_in_grid]])
{
    long M = dims[0];
    long N = dims[1];
    long K = dims[2];
    if (g.x >= N || g.y >= M) {
        return;
    }
    device const float* arow = a + (g.z * M + g.y) * K;
    device const float* bcol = b + g.z * K * N + g.x;
    float acc = bias[g.x];
    for (long k = 0; k < K; ++k) {
        acc += arow[k] * bcol[k * N];
    }
    c[(g.z * M + g.y) * N + g.x] = acc;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        batch, m, k = a.shape
        n = b.shape[2]
        c = torch.empty(batch, m, n, device=a.device)
        library.bmm_bias(a, b, self.bias, c, [m, n, k], threads=[n, m, batch], group_size=[8, 8, 1])
        return c


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, a, b):
        return torch.bmm(a, b) + self.bias


def get_inputs():
    return [torch.randn(5, 21, 34), torch.randn(5, 34, 27)]


def get_init_inputs():
    return [27]
