# style: complex numbers as float2, an operator in a struct, no guard since the grid is exact
# features: operator overloading, float2, in-register helper, view_as_real input

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

struct Complex {
    float re;
    float im;
    Complex(float r, float i) : re(r), im(i) {}
    Complex(float2 v) : re(v.x), im(v.y) {}
    Complex operator*(Complex o) const { return Complex(re * o.re - im * o.im, re * o.im + im * o.re); }
    float2 packed() const { return float2(re, im); }
};

kernel void complex_square_mul(device const float2* a [[buffer(0)]],
                               device const float2* b [[buffer(1)]],
                               device float2* out [[buffer(2)]],
                               uint i [[thread_position_in_grid]])
{
    Complex x(a[i]);
    Complex y(b[i]);
    out[i] = (x * x * y).packed();
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        library.complex_square_mul(a, b, out, threads=a.numel() // 2, group_size=256)
        return out


class Model(nn.Module):
    def forward(self, a, b):
        x, y = torch.view_as_complex(a), torch.view_as_complex(b)
        return torch.view_as_real(x * x * y)


def get_inputs():
    return [torch.randn(300, 5, 2), torch.randn(300, 5, 2)]


def get_init_inputs():
    return []
