# style: packed nibbles, block scales, one byte per thread
# features: uchar, bit operations, int4 dequantise, half scales, block index

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

constant uint BLOCK_SIZE = 32;

kernel void dequantize_q4(device const uchar* packed [[buffer(0)]],
                          device const half* scales [[buffer(1)]],
                          device float* out [[buffer(2)]],
                          uint i [[thread_position_in_grid]])
{
    uchar byte = packed[i];
    int lo = int(byte & 0x0F) - 8;
    int hi = int(byte >> 4) - 8;
    float d = float(scales[(2 * i) / BLOCK_SIZE]);
    out[2 * i] = float(lo) * d;
    out[2 * i + 1] = float(hi) * d;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, packed, scales):
        packed, scales = packed.contiguous(), scales.contiguous()
        out = torch.empty(packed.numel() * 2, dtype=torch.float32, device="mps")
        library.dequantize_q4(packed, scales, out, threads=packed.numel(), group_size=100)
        return out


class Model(nn.Module):
    def forward(self, packed, scales):
        low = (packed & 15).to(torch.int32) - 8
        high = (packed >> 4).to(torch.int32) - 8
        values = torch.stack([low, high], dim=-1).flatten().float()
        return values * scales.float().repeat_interleave(32)


def get_inputs():
    return [torch.randint(0, 256, (16 * 123,), dtype=torch.uint8), torch.rand(123).half()]


def get_init_inputs():
    return []
