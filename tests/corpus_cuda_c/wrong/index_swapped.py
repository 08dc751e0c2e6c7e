# style: 2D launch with rows and columns exchanged
# features: 2D grid
# bug: wrong index
# caught: mismatch
# line: y[row * cols + col] = x[row * cols + col] + bias[row];

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void add_bias(const float* x, const float* bias, float* y, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && col < cols) y[row * cols + col] = x[row * cols + col] + bias[row];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("add_bias")


class ModelNew(nn.Module):
    def forward(self, x, bias):
        x, bias = x.contiguous(), bias.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=((cols + 15) // 16, (rows + 15) // 16), block=(16, 16))
        sizes = (ctypes.c_int(rows), ctypes.c_int(cols))
        launch(stream, config, kernel, x.data_ptr(), bias.data_ptr(), y.data_ptr(), *sizes)
        return y


class Model(nn.Module):
    def forward(self, x, bias):
        return x + bias


def get_inputs():
    return [torch.randn(40, 40), torch.randn(40)]


def get_init_inputs():
    return []
