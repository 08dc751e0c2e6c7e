# style: terse, one header and no namespace, dispatch left to the first tensor
# features: elementwise, fast math, default threads, metal:: prefix

import torch
import torch.nn as nn

lib = torch.mps.compile_shader(
    "#include <metal_math>\n"
    "kernel void swish(device float* y, constant float* x, constant float& beta, uint i [[thread_position_in_grid]])"
    "{ float v = x[i]; y[i] = v / (1.0f + metal::fast::exp(-beta * v)); }"
)


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        y = torch.empty_like(x)
        lib.swish(y, x, self.beta)
        return y


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


def get_inputs():
    return [torch.randn(3, 17, 29)]


def get_init_inputs():
    return [1.5]
