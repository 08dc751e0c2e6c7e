# style: textbook tree reduction
# features: threadgroup tree reduction
# bug: missing barrier
# caught: checked
# line: shared_data[lid] += shared_data[lid + s];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void row_sum(device const float* x [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    constant uint& cols [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint lid [[thread_position_in_threadgroup]])
{
    threadgroup float shared_data[128];
    float acc = 0.0f;
    for (uint c = lid; c < cols; c += 128) acc += x[row * cols + c];
    shared_data[lid] = acc;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint s = 64; s > 0; s >>= 1) {
        if (lid < s) {
            shared_data[lid] += shared_data[lid + s];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lid == 0) out[row] = shared_data[0];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device="mps")
        library.row_sum(x, out, cols, threads=rows * 128, group_size=128)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randn(10, 300)]


def get_init_inputs():
    return []
