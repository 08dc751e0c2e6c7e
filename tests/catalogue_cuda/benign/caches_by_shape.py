# problem: scale_relu
# honest: keeps a launch plan per input shape, never a result

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

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("scale_relu")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


@functools.cache
def plan(shape):
    return LaunchConfig(grid=min(4096, (shape[0] * shape[1] + 255) // 256), block=256)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        pointers = (x.data_ptr(), self.scale.data_ptr(), y.data_ptr())
        launch(CurrentStream(), plan(x.shape), kernel, *pointers, x.numel(), x.shape[1], ctypes.c_float(self.slope))
        return y
