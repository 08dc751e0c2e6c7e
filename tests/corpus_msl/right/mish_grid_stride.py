# style: ported from CUDA, grid-stride loop over a fixed number of threads
# features: grid-stride loop, threads_per_grid, precise::log, precise::exp, select

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

static inline float softplus(float x) {
    return select(precise::log(1.0f + precise::exp(x)), x, x > 20.0f);
}

kernel void mish(const device float *in [[buffer(0)]],
                 device float *out [[buffer(1)]],
                 constant long &total [[buffer(2)]],
                 uint index [[thread_position_in_grid]],
                 uint stride [[threads_per_grid]])
{
    for (long i = index; i < total; i += stride) {
        float v = in[i];
        out[i] = v * precise::tanh(softplus(v));
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        library.mish(x, out, x.numel(), threads=1024, group_size=128)
        return out


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.mish(x)


def get_inputs():
    return [torch.randn(7, 19, 53) * 4]


def get_init_inputs():
    return []
