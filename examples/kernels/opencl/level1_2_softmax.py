"""Softmax along rows in OpenCL C: a work-item finishes its row while it is in the cache."""

import math

import numpy as np
import pyopencl as cl
import torch
import torch.nn as nn

SOURCE = r"""
float largest(float16 v) {
    float8 a = fmax(v.lo, v.hi);
    float4 b = fmax(a.lo, a.hi);
    float2 c = fmax(b.lo, b.hi);
    return fmax(c.x, c.y);
}

float total(float16 v) {
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    float2 c = b.lo + b.hi;
    return c.x + c.y;
}

__kernel void softmax(__global const float* restrict x, __global float* restrict y, uint columns) {
    size_t row = get_global_id(0);
    x += row * columns;
    y += row * columns;
    uint whole = columns / 16;
    float16 tops = (float16)(-INFINITY);
    for (uint c = 0; c < whole; ++c) tops = fmax(tops, vload16(c, x));
    float top = largest(tops);
    for (uint c = 16 * whole; c < columns; ++c) top = fmax(top, x[c]);

    float16 sums = (float16)(0.0f);
    for (uint c = 0; c < whole; ++c) {
        float16 e = exp(vload16(c, x) - top);
        sums += e;
        vstore16(e, c, y);
    }
    float sum = total(sums);
    for (uint c = 16 * whole; c < columns; ++c) sum += y[c] = exp(x[c] - top);

    float scale = 1.0f / sum;
    for (uint c = 0; c < whole; ++c) vstore16(vload16(c, y) * scale, c, y);
    for (uint c = 16 * whole; c < columns; ++c) y[c] *= scale;
}
"""

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "softmax")
READ, READ_WRITE = cl.mem_flags.READ_ONLY, cl.mem_flags.READ_WRITE


def buffer(tensor, access):
    """The tensor's own memory as a buffer."""
    return cl.Buffer(context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    def forward(self, scores):
        scores = scores.contiguous()
        weights = torch.empty_like(scores)
        columns = scores.shape[-1]
        out = buffer(weights, READ_WRITE)
        rows = scores.numel() // columns
        kernel(queue, (rows,), (math.gcd(rows, 16),), buffer(scores, READ), out, np.uint32(columns))
        mapped, _ = cl.enqueue_map_buffer(queue, out, cl.map_flags.READ, 0, tuple(weights.shape), np.float32)
        mapped.base.release(queue)
        queue.finish()
        return weights
