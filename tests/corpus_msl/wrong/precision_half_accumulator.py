# style: half tensors added up in half
# features: half, reduction
# bug: precision
# caught: mismatch
# line: half acc = 0.0h;

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_mean(device const half* x [[buffer(0)]],
                     device float* out [[buffer(1)]],
                     constant uint& cols [[buffer(2)]],
                     uint row [[thread_position_in_grid]])
{
    half acc = 0.0h;
    for (uint c = 0; c < cols; ++c) acc += x[row * cols + c];
    out[row] = float(acc) / float(cols);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, dtype=torch.float32, device=x.device)
        library.row_mean(x, out, cols, threads=rows, group_size=32)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.float().mean(1)


def get_inputs():
    return [torch.rand(20, 6000).half() + 0.5]


def get_init_inputs():
    return []
