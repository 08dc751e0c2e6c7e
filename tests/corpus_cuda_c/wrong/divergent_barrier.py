# style: the barrier moved into the branch of a tree reduction
# features: __syncthreads, branch
# bug: divergent barrier
# caught: either
# line: __syncthreads();  // each level

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
// y = x minus the block's mean
extern "C" __global__ void minus_mean(const float* x, float* y, int n) {
    __shared__ float sums[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    sums[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (t < s) {
            sums[t] += sums[t + s];
            __syncthreads();  // each level
        }
    }
    __syncthreads();
    if (i < n) y[i] = x[i] - sums[0] / 128.0f;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("minus_mean")


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
        blocks = x.reshape(-1, 128)
        return (blocks - blocks.mean(1, keepdim=True)).reshape(-1)


def get_inputs():
    return [torch.randn(8 * 128)]


def get_init_inputs():
    return []
