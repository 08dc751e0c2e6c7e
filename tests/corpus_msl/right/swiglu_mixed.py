# style: gated unit on half tensors, half literals and half math
# features: half literals, half arithmetic, fused two-input op, fast::exp

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void swiglu(device const half* x [[buffer(0)]],
                   device half* y [[buffer(1)]],
                   constant uint& hidden [[buffer(2)]],
                   uint2 gid [[thread_position_in_grid]])
{
    device const half* row = x + gid.y * 2 * hidden;
    half gate = row[gid.x];
    half up = row[gid.x + hidden];
    half act = gate * half(1.0f / (1.0f + fast::exp(-float(gate))));
    // values this large do not occur in practice; keep them finite all the same
    y[gid.y * hidden + gid.x] = clamp(act * up, -60000.0h, 60000.0h);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, both = x.shape
        hidden = both // 2
        y = torch.empty(rows, hidden, dtype=x.dtype, device=x.device)
        library.swiglu(x, y, hidden, threads=(hidden, rows), group_size=(64, 2))
        return y


class Model(nn.Module):
    def forward(self, x):
        gate, up = x.float().chunk(2, dim=1)
        return (torch.nn.functional.silu(gate) * up).half()


def get_inputs():
    return [torch.randn(23, 2 * 75).half()]


def get_init_inputs():
    return []
