# style: online softmax that forgets to rescale the running sum
# features: online softmax
# bug: wrong formula
# caught: mismatch
# line: s += exp(v - m_new);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void softmax_serial(device const float* x [[buffer(0)]],
                           device float* y [[buffer(1)]],
                           constant uint& cols [[buffer(2)]],
                           uint row [[thread_position_in_grid]])
{
    device const float* in = x + row * cols;
    device float* out = y + row * cols;
    float m = -INFINITY;
    float s = 0.0f;
    for (uint c = 0; c < cols; ++c) {
        float v = in[c];
        float m_new = max(m, v);
        s += exp(v - m_new);
        m = m_new;
    }
    for (uint c = 0; c < cols; ++c) out[c] = exp(in[c] - m) / s;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        library.softmax_serial(x, y, cols, threads=rows, group_size=32)
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(50, 30)]


def get_init_inputs():
    return []
