# style: table in constant memory at program scope, looked up by nibble
# features: constant array at program scope, uchar2, lookup table, absmax scaling

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

constant float LEVELS[16] = {
    -1.0f, -0.7f, -0.525f, -0.395f, -0.285f, -0.185f, -0.09f, 0.0f,
    0.08f, 0.16f, 0.245f, 0.338f, 0.44f, 0.56f, 0.72f, 1.0f
};

kernel void lookup(device const uchar2* codes [[buffer(0)]],
                   constant float* absmax [[buffer(1)]],
                   device float4* out [[buffer(2)]],
                   constant uint& pairs_per_row [[buffer(3)]],
                   uint2 gid [[thread_position_in_grid]])
{
    if (gid.x >= pairs_per_row) return;
    const uint index = gid.y * pairs_per_row + gid.x;
    const uchar2 c = codes[index];
    const float4 level = float4(LEVELS[c.x & 15], LEVELS[c.x >> 4], LEVELS[c.y & 15], LEVELS[c.y >> 4]);
    out[index] = level * absmax[gid.y];
}
"""

library = torch.mps.compile_shader(SOURCE)
LEVELS = [-1, -0.7, -0.525, -0.395, -0.285, -0.185, -0.09, 0, 0.08, 0.16, 0.245, 0.338, 0.44, 0.56, 0.72, 1]


class ModelNew(nn.Module):
    def forward(self, codes, absmax):
        codes = codes.contiguous()
        rows, columns = codes.shape
        out = torch.empty(rows, columns * 2, device="mps")
        library.lookup(codes, absmax, out, columns // 2, threads=(64, rows), group_size=(64, 1))
        return out


class Model(nn.Module):
    def forward(self, codes, absmax):
        table = torch.tensor(LEVELS, dtype=torch.float32, device=codes.device)
        nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(1)
        return table[nibbles.long()] * absmax[:, None]


def get_inputs():
    return [torch.randint(0, 256, (31, 90), dtype=torch.uint8), torch.rand(31) + 0.1]


def get_init_inputs():
    return []
