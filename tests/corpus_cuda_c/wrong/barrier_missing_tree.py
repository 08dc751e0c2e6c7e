# style: tree in shared memory, as if a warp went in step
# features: __shared__, reduction
# bug: missing barrier
# caught: checked
# line: if (tid < s) cache[tid] += cache[tid + s];

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void row_sum(const float* x, float* out, int cols) {
    __shared__ float cache[128];
    int tid = threadIdx.x;
    float acc = 0.0f;
    for (int c = tid; c < cols; c += 128) acc += x[blockIdx.x * cols + c];
    cache[tid] = acc;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (tid < s) cache[tid] += cache[tid + s];
    }
    __syncthreads();
    if (tid == 0) out[blockIdx.x] = cache[0];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("row_sum")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, LaunchConfig(grid=rows, block=128), kernel, x.data_ptr(), out.data_ptr(), ctypes.c_int(cols))
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(8, 300)]


def get_init_inputs():
    return []
