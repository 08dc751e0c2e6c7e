# style: early return above a barrier
# features: __syncthreads, early return
# bug: divergent barrier
# caught: either
# line: if (i >= n) return;

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void minus_first(const float* x, float* y, int n) {
    __shared__ float first;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (threadIdx.x == 0) first = x[i];
    __syncthreads();
    y[i] = x[i] - first;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("minus_first")


class ModelNew(nn.Module):
    def forward(self, x):

        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=(n + 127) // 128, block=128)
        launch(stream, config, kernel, x.data_ptr(), y.data_ptr(), ctypes.c_int(n))
        return y


class Model(nn.Module):
    def forward(self, x):
        firsts = x[::128].repeat_interleave(128)[: x.numel()]
        return x - firsts


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []
