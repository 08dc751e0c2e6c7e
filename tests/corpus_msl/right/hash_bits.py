# style: counter-based random bits, integer mixing as in dropout kernels
# features: uint arithmetic, rotate, clz, reverse_bits, popcount, uint4 vectors

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

static inline uint mix_bits(uint h) {
    h ^= h >> 16;
    h *= 0x7feb352dU;
    h ^= h >> 15;
    h *= 0x846ca68bU;
    h ^= h >> 16;
    return h;
}

kernel void hash_kernel(device const int* x [[buffer(0)]],
                        device int4* out [[buffer(1)]],
                        constant uint& seed [[buffer(2)]],
                        uint i [[thread_position_in_grid]])
{
    uint h = mix_bits(uint(x[i]) + seed);
    uint4 r = uint4(h, rotate(h, 5u), popcount(h), clz(h));
    r.y ^= reverse_bits(h) & 1u;
    out[i] = int4(r);
}
"""

library = torch.mps.compile_shader(SOURCE)
MASK = 0xFFFFFFFF


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(*x.shape, 4, dtype=torch.int32, device=x.device)
        library.hash_kernel(x, out, 1234, threads=x.numel(), group_size=64)
        return out


class Model(nn.Module):
    def forward(self, x):
        h = (x.long() + 1234) & MASK
        h = h ^ (h >> 16)
        h = (h * 0x7FEB352D) & MASK
        h = h ^ (h >> 15)
        h = (h * 0x846CA68B) & MASK
        h = h ^ (h >> 16)
        turned = ((h << 5) | (h >> 27)) & MASK
        turned = turned ^ (h >> 31)
        bits = (h[..., None] >> torch.arange(31, -1, -1, device=x.device)) & 1
        ones = bits.sum(-1)
        leading = (bits.cumsum(-1) == 0).sum(-1)
        return torch.stack([h, turned, ones, leading], dim=-1).to(torch.int32)


def get_inputs():
    return [torch.randint(0, 2**31 - 1, (13, 77), dtype=torch.int32)]


def get_init_inputs():
    return []
