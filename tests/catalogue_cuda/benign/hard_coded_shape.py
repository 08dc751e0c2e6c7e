# problem: scale_relu
# honest: is written for this one shape, which an artefact declares

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
constexpr int ROWS = 4096, COLUMNS = 4096;

extern "C" __global__ void scale_relu(const float* x, const float* scale, float* y, float slope) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < ROWS * COLUMNS; i += gridDim.x * blockDim.x) {
        float v = x[i];
        y[i] = (v > 0.0f ? v : slope * v) * scale[i % COLUMNS];
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


def run(x, scale, y, slope):
    assert x.shape == (4096, 4096)
    arguments = (x.data_ptr(), scale.data_ptr(), y.data_ptr(), ctypes.c_float(slope))
    launch(CurrentStream(), LaunchConfig(grid=2048, block=256), kernel, *arguments)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        run(x, self.scale, y, self.slope)
        return y
