# problem: clamp_mask
# honest: clamps and masks every element, the last partial block included

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void clamp_add(const float* x, const float* y, float* out, long long count, float bound,
                                     float lowest) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        float v = x[i] + y[i];
        out[i] = x[i] < lowest ? 0.0f : v < -bound ? -bound : v > bound ? bound : v;
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("clamp_add")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def __init__(self, bound, lowest):
        super().__init__()
        self.bounds = ctypes.c_float(bound), ctypes.c_float(lowest)

    def forward(self, x, y):
        out = torch.empty_like(x)
        arguments = (x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel(), *self.bounds)
        launch(CurrentStream(), LaunchConfig(grid=(x.numel() + 255) // 256, block=256), kernel, *arguments)
        return out
