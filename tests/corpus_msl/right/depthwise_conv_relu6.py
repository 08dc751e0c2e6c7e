# style: mobile network style, channels in z, unrolled 3x3 with a pragma
# features: depthwise conv, 3D dispatch, clamp, stride 2, pragma unroll

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void depthwise3x3_relu6(
    device const float *src  [[buffer(0)]],
    device const float *w    [[buffer(1)]],
    device const float *bias [[buffer(2)]],
    device float *dst        [[buffer(3)]],
    constant int &channels   [[buffer(4)]],
    constant int2 &in_size   [[buffer(5)]],
    constant int2 &out_size  [[buffer(6)]],
    uint3 gid [[thread_position_in_grid]])
{
    const int2 o = int2(gid.xy);
    if (any(o >= out_size)) return;
    const int c = int(gid.z) % channels;
    device const float *plane = src + int(gid.z) * in_size.x * in_size.y;
    device const float *taps = w + c * 9;

    float acc = bias[c];
    #pragma unroll
    for (int ky = 0; ky < 3; ++ky) {
        #pragma unroll
        for (int kx = 0; kx < 3; ++kx) {
            const int2 i = o * 2 + int2(kx, ky) - 1;
            if (all(i >= 0) && all(i < in_size))
                acc = fma(plane[i.y * in_size.x + i.x], taps[ky * 3 + kx], acc);
        }
    }
    dst[(int(gid.z) * out_size.y + o.y) * out_size.x + o.x] = clamp(acc, 0.0f, 6.0f);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels)

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        oh, ow = (h + 1) // 2, (w + 1) // 2
        in_size = torch.tensor([w, h], dtype=torch.int32, device=x.device)
        out_size = torch.tensor([ow, oh], dtype=torch.int32, device=x.device)
        y = torch.empty(n, c, oh, ow, device=x.device)
        library.depthwise3x3_relu6(
            x,
            self.conv.weight,
            self.conv.bias,
            y,
            c,
            in_size,
            out_size,
            threads=(ow, oh, n * c),
            group_size=(8, 8, 2),
        )
        return y


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels)

    def forward(self, x):
        return torch.nn.functional.relu6(self.conv(x))


def get_inputs():
    return [torch.randn(2, 7, 21, 26) * 3]


def get_init_inputs():
    return [7]
