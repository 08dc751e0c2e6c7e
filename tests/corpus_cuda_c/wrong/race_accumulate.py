# style: plain addition where an atomic belongs
# features: reduction
# bug: race
# caught: checked
# line: out[i % cols] += x[i];

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void column_sum(const float* x, float* out, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i % cols] += x[i];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("column_sum")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, cols = x.numel(), x.shape[1]
        out = torch.zeros(cols, device=x.device)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=(n + 255) // 256, block=256)
        launch(stream, config, kernel, x.data_ptr(), out.data_ptr(), ctypes.c_int(n), ctypes.c_int(cols))
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum(0)


def get_inputs():
    return [torch.rand(110, 12)]


def get_init_inputs():
    return []
