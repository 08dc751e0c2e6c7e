# style: threads rounded up to whole groups, the guard forgotten
# features: elementwise
# bug: out-of-bounds
# caught: checked
# line: y[gid] = max(x[gid], 0.0f);

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void relu(device const float* x [[buffer(0)]],
                 device float* y [[buffer(1)]],
                 uint gid [[thread_position_in_grid]])
{
    y[gid] = max(x[gid], 0.0f);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        library.relu(x, y, threads=(n + 255) // 256 * 256, group_size=256)
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(21, 47)]


def get_init_inputs():
    return []
