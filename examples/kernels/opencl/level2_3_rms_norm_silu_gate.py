"""Root-mean-square normalisation times the SiLU of a gate in OpenCL C: one kernel, a row for each work-item."""

import math

import numpy as np
import pyopencl as cl
import torch
import torch.nn as nn

SOURCE = r"""
float total(float16 v) {
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    float2 c = b.lo + b.hi;
    return c.x + c.y;
}

__kernel void rms_norm_silu_gate(__global const float* restrict x, __global const float* restrict gate,
                                 __global const float* restrict weight, __global float* restrict y,
                                 uint features, float eps) {
    size_t row = get_global_id(0);
    x += row * features;
    gate += row * features;
    y += row * features;
    uint whole = features / 16;
    float16 squares = (float16)(0.0f);
    for (uint c = 0; c < whole; ++c) {
        float16 v = vload16(c, x);
        squares += v * v;
    }
    float sum = total(squares);
    for (uint c = 16 * whole; c < features; ++c) sum += x[c] * x[c];

    float scale = 1.0f / sqrt(sum / features + eps);
    for (uint c = 0; c < whole; ++c) {
        float16 g = vload16(c, gate);
        float16 silu = g / (1.0f + exp(-g));
        vstore16(vload16(c, x) * scale * vload16(c, weight) * silu, c, y);
    }
    for (uint c = 16 * whole; c < features; ++c) {
        y[c] = x[c] * scale * weight[c] * (gate[c] / (1.0f + exp(-gate[c])));
    }
}
"""

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "rms_norm_silu_gate")
READ, WRITE = cl.mem_flags.READ_ONLY, cl.mem_flags.WRITE_ONLY


def buffer(tensor, access):
    """The tensor's own memory as a buffer."""
    return cl.Buffer(context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, gate):
        x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        features = x.shape[-1]
        rows = x.numel() // features
        out = buffer(y, WRITE)
        tensors = (buffer(x, READ), buffer(gate, READ), buffer(self.weight, READ), out)
        kernel(queue, (rows,), (math.gcd(rows, 16),), *tensors, np.uint32(features), np.float32(self.eps))
        mapped, _ = cl.enqueue_map_buffer(queue, out, cl.map_flags.READ, 0, tuple(y.shape), np.float32)
        mapped.base.release(queue)
        queue.finish()
        return y
