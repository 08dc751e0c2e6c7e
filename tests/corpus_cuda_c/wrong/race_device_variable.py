# style: a total kept in a variable of the program, as if blocks took turns
# features: __device__ variable, three kernels
# bug: race
# caught: checked
# line: total_ += a;

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
__device__ float total_;
extern "C" __global__ void begin() { total_ = 0.0f; }
extern "C" __global__ void add(const float* x, int n) {
    float a = 0.0f;
    for (int i = blockIdx.x; i < n; i += gridDim.x) a += x[i];
    total_ += a;
}
extern "C" __global__ void finish(float* out) { *out = total_; }
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
code = Program(SOURCE, code_type="c++", options=options).compile("cubin")
begin, add, finish = (code.get_kernel(name) for name in ("begin", "add", "finish"))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), device=x.device)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        one, some = LaunchConfig(grid=1, block=1), LaunchConfig(grid=8, block=1)
        launch(stream, one, begin)
        launch(stream, some, add, x.data_ptr(), ctypes.c_int(x.numel()))
        launch(stream, one, finish, out.data_ptr())
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum()


def get_inputs():
    return [torch.randn(100)]


def get_init_inputs():
    return []
