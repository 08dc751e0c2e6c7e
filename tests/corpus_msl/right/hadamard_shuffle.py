# style: butterfly across lanes, no memory between the steps
# features: simd_shuffle_xor, Walsh-Hadamard transform, sign by lane bit

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void hadamard32(device const float* x [[buffer(0)]],
                       device float* y [[buffer(1)]],
                       uint gid [[thread_position_in_grid]],
                       ushort lane [[thread_index_in_simdgroup]])
{
    float v = x[gid];
    for (ushort mask = 1; mask < 32; mask = ushort(mask << 1)) {
        float partner = simd_shuffle_xor(v, mask);
        v = (lane & mask) ? partner - v : partner + v;
    }
    y[gid] = v * 0.17677669529663687f;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.hadamard32(x, y, threads=x.numel(), group_size=64)
        return y


class Model(nn.Module):
    def forward(self, x):
        h = torch.ones(1, 1, device=x.device)
        for _ in range(5):
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
        return x @ h / 32**0.5


def get_inputs():
    return [torch.randn(67, 32)]


def get_init_inputs():
    return []
