# style: template over the element type, instantiated under two host names
# features: templates, host_name, decltype instance, half and float instances, getattr by dtype

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

template <typename T>
inline T softsign(T x) {
    return x / (T(1) + abs(x));
}

template <typename T>
kernel void softsign_kernel(device const T* x [[buffer(0)]],
                            device T* y [[buffer(1)]],
                            constant uint& n [[buffer(2)]],
                            uint gid [[thread_position_in_grid]]) {
    if (gid >= n) return;
    y[gid] = softsign(x[gid]);
}

template [[host_name("softsign_float")]]
kernel void softsign_kernel<float>(device const float* x [[buffer(0)]],
                                   device float* y [[buffer(1)]],
                                   constant uint& n [[buffer(2)]],
                                   uint gid [[thread_position_in_grid]]);

template [[host_name("softsign_half")]] [[kernel]] decltype(softsign_kernel<half>) softsign_kernel<half>;
"""

library = torch.mps.compile_shader(SOURCE)
KERNELS = {torch.float32: library.softsign_float, torch.float16: library.softsign_half}


class ModelNew(nn.Module):
    def forward(self, x, h):
        outputs = []
        for tensor in (x.contiguous(), h.contiguous()):
            out = torch.empty_like(tensor)
            n = tensor.numel()
            KERNELS[tensor.dtype](tensor, out, n, threads=(n + 63) // 64 * 64, group_size=64)
            outputs.append(out)
        return tuple(outputs)


class Model(nn.Module):
    def forward(self, x, h):
        return torch.nn.functional.softsign(x), torch.nn.functional.softsign(h.float()).half()


def get_inputs():
    return [torch.randn(500, 3), torch.randn(11, 31).half()]


def get_init_inputs():
    return []
