"""GELU in its tanh form in OpenCL C: as a sigmoid, one exponential an element."""

import numpy as np
import pyopencl as cl
import torch
import torch.nn as nn

SOURCE = r"""
// 0.5 (1 + tanh(w / 2)) is the sigmoid of w; from exp(-|w|), which cannot overflow.
#define GELU(T)                                                                           \
    T w = v * (1.59576912f + 0.0713548163f * v * v);                                      \
    T e = exp(-fabs(w));                                                                  \
    T r = v * select((T)(1.0f), e, isless(w, (T)(0.0f))) / (1.0f + e);

__kernel void gelu(__global const float* restrict x, __global float* restrict y, ulong count) {
    size_t i = get_global_id(0);
    if (16 * i + 16 <= count) {
        float16 v = vload16(i, x);
        GELU(float16)
        vstore16(r, i, y);
    } else {
        for (size_t k = 16 * i; k < count; ++k) {
            float v = x[k];
            GELU(float)
            y[k] = r;
        }
    }
}
"""

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "gelu")
READ, WRITE = cl.mem_flags.READ_ONLY, cl.mem_flags.WRITE_ONLY


def buffer(tensor, access):
    """The tensor's own memory as a buffer."""
    return cl.Buffer(context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        out = buffer(y, WRITE)
        kernel(queue, ((x.numel() + 15) // 16,), None, buffer(x, READ), out, np.uint64(x.numel()))
        mapped, _ = cl.enqueue_map_buffer(queue, out, cl.map_flags.READ, 0, tuple(y.shape), np.float32)
        mapped.base.release(queue)
        queue.finish()
        return y
