# style: every thread leaves the same flag behind as the last thing it does
# features: threadgroup flag written by all, simd_sum

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_mean(device const float* x [[buffer(0)]],
                     device float* y [[buffer(1)]],
                     constant uint& n [[buffer(2)]],
                     uint g [[threadgroup_position_in_grid]],
                     uint t [[thread_position_in_threadgroup]])
{
    threadgroup uint done;
    float a = 0.0f;
    for (uint k = t; k < n; k += 32) a += x[g * n + k];
    a = simd_sum(a);
    if (t == 0) y[g] = a / float(n);
    done = 1;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        y = torch.empty(rows, device=x.device)
        library.row_mean(x, y, n, threads=rows * 32, group_size=32)
        return y


class Model(nn.Module):
    def forward(self, x):
        return x.mean(1)


def get_inputs():
    return [torch.randn(9, 70)]


def get_init_inputs():
    return []
