# style: exact GELU, erf by polynomial since MSL has none
# features: constant array coefficients, copysign, precise::exp, helper namespace, default arguments

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

namespace special {

constant float P[5] = {0.254829592f, -0.284496736f, 1.421413741f, -1.453152027f, 1.061405429f};

// Abramowitz and Stegun 7.1.26, error below 1.5e-7
inline float erf(float x) {
    float a = fabs(x);
    float t = 1.0f / fma(0.3275911f, a, 1.0f);
    float poly = 0.0f;
    for (int i = 4; i >= 0; --i) {
        poly = fma(poly, t, P[i]);
    }
    float r = 1.0f - poly * t * precise::exp(-a * a);
    return copysign(r, x);
}

inline float gelu(float x, float scale = M_SQRT1_2_F) {
    return 0.5f * x * (1.0f + special::erf(x * scale));
}

}  // namespace special

kernel void gelu_exact(device const float* x [[buffer(0)]],
                       device float* y [[buffer(1)]],
                       uint i [[thread_position_in_grid]])
{
    y[i] = special::gelu(x[i]);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.gelu_exact(x, y, threads=x.numel(), group_size=256)
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(13, 17, 19) * 2]


def get_init_inputs():
    return []
