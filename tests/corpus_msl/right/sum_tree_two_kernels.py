# style: textbook, two kernels in one source, partial sums in a scratch tensor
# features: threadgroup tree reduction, multiple kernels, ragged size

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

#define GROUP_SIZE 256

// Pass 1: every threadgroup writes one partial sum
kernel void partial_sum(device const float* input    [[buffer(0)]],
                        device float*       partials [[buffer(1)]],
                        constant uint&      n        [[buffer(2)]],
                        uint gid [[thread_position_in_grid]],
                        uint lid [[thread_position_in_threadgroup]],
                        uint group [[threadgroup_position_in_grid]])
{
    threadgroup float shared_data[GROUP_SIZE];

    shared_data[lid] = (gid < n) ? input[gid] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint s = GROUP_SIZE / 2; s > 0; s >>= 1) {
        if (lid < s) {
            shared_data[lid] += shared_data[lid + s];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    if (lid == 0) {
        partials[group] = shared_data[0];
    }
}

// Pass 2: one threadgroup adds up the partial sums
kernel void final_sum(device const float* partials [[buffer(0)]],
                      device float*       result   [[buffer(1)]],
                      constant uint&      count    [[buffer(2)]],
                      uint lid [[thread_position_in_threadgroup]])
{
    threadgroup float shared_data[GROUP_SIZE];

    float acc = 0.0f;
    for (uint i = lid; i < count; i += GROUP_SIZE) {
        acc += partials[i];
    }
    shared_data[lid] = acc;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint s = GROUP_SIZE / 2; s > 0; s >>= 1) {
        if (lid < s) {
            shared_data[lid] += shared_data[lid + s];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    if (lid == 0) {
        result[0] = shared_data[0];
    }
}
"""

library = torch.mps.compile_shader(SOURCE)
GROUP_SIZE = 256


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        groups = (n + GROUP_SIZE - 1) // GROUP_SIZE
        partials = torch.empty(groups, dtype=torch.float32, device=x.device)
        result = torch.empty((), dtype=torch.float32, device=x.device)
        library.partial_sum(x, partials, n, threads=groups * GROUP_SIZE, group_size=GROUP_SIZE)
        library.final_sum(partials, result, groups, threads=GROUP_SIZE, group_size=GROUP_SIZE)
        return result


class Model(nn.Module):
    def forward(self, x):
        return x.sum()


def get_inputs():
    return [torch.rand(83, 97)]


def get_init_inputs():
    return []
