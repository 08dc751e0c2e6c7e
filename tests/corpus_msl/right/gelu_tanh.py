# style: verbose, one thread per element, every buffer numbered
# features: elementwise, precise math, bounds check, ragged size

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

// GELU with the tanh approximation:
//   0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
kernel void gelu_tanh_kernel(
    device const float* input  [[buffer(0)]],
    device float*       output [[buffer(1)]],
    constant uint&      count  [[buffer(2)]],
    uint gid [[thread_position_in_grid]])
{
    // Threads past the end have nothing to do
    if (gid >= count) {
        return;
    }

    const float kSqrt2OverPi = 0.7978845608028654f;
    const float kCoefficient = 0.044715f;

    float x = input[gid];
    float inner = kSqrt2OverPi * (x + kCoefficient * x * x * x);
    output[gid] = 0.5f * x * (1.0f + precise::tanh(inner));
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        output = torch.empty_like(x)
        n = x.numel()
        threads = (n + 255) // 256 * 256
        library.gelu_tanh_kernel(x, output, n, threads=threads, group_size=256)
        return output


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh")


def get_inputs():
    return [torch.randn(37, 131) * 3]


def get_init_inputs():
    return []
