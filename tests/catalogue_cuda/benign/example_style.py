# problem: scale_relu
# honest: is written as the platform's example is: four columns a thread, on torch's current stream

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void scale_relu(const float4* __restrict__ x, const float4* __restrict__ scale,
                                      float4* __restrict__ y, long long count, long long columns, float slope) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float4 v = x[i], s = scale[i % columns];
        v.x = (v.x > 0.0f ? v.x : slope * v.x) * s.x;
        v.y = (v.y > 0.0f ? v.y : slope * v.y) * s.y;
        v.z = (v.z > 0.0f ? v.z : slope * v.z) * s.z;
        v.w = (v.w > 0.0f ? v.w : slope * v.w) * s.w;
        y[i] = v;
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
    arguments = (x.data_ptr(), scale.data_ptr(), y.data_ptr(), x.numel() // 4, x.shape[1] // 4, ctypes.c_float(slope))
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
