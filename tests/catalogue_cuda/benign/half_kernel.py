# problem: half_add
# honest: adds and clamps two halves at a time, and keeps NaN

import os

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
#include <cuda_fp16.h>

extern "C" __global__ void add_relu(const __half2* x, const __half2* y, __half2* out, long long count) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        out[i] = __hmax2_nan(__hadd2(x[i], y[i]), __float2half2_rn(0.0f));
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
include = os.path.join(os.environ["CUDA_HOME"], "include")
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", include_path=[include, os.path.join(include, "cccl")])
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("add_relu")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        arguments = (x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel() // 2)
        launch(CurrentStream(), LaunchConfig(grid=2048, block=256), kernel, *arguments)
        return out
