# problem: scale_relu
# honest: compiles its kernel in the first call, and not when imported

import ctypes
import functools

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void scale_relu(const float* x, const float* scale, float* y, long long count, long long columns,
                                      float slope) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float v = x[i];
        y[i] = (v > 0.0f ? v : slope * v) * scale[i % columns];
    }
}
"""


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


@functools.cache
def compiled():
    device = Device(torch.cuda.current_device())
    device.set_current()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    return Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("scale_relu")


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        sizes = (x.numel(), x.shape[1], ctypes.c_float(self.slope))
        pointers = (x.data_ptr(), self.scale.data_ptr(), y.data_ptr())
        launch(CurrentStream(), LaunchConfig(grid=2048, block=256), compiled(), *pointers, *sizes)
        return y
