# style: stencil with a tile that has no room for its right halo
# features: __shared__, halo
# bug: out-of-bounds
# caught: checked
# line: if (t == 127) tile[t + 2] = i + 1 < n ? x[i + 1] : 0.0f;

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void smooth(const float* x, float* y, int n) {
    __shared__ float tile[129];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    tile[t + 1] = i < n ? x[i] : 0.0f;
    if (t == 0) tile[0] = i > 0 ? x[i - 1] : 0.0f;
    if (t == 127) tile[t + 2] = i + 1 < n ? x[i + 1] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = (tile[t] + tile[t + 1] + tile[t + 2]) / 3.0f;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("smooth")


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
        return torch.nn.functional.avg_pool1d(x[None, None], 3, stride=1, padding=1)[0, 0]


def get_inputs():
    return [torch.randn(900)]


def get_init_inputs():
    return []
