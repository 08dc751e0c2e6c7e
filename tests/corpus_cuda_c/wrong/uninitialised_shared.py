# style: warp sums read for 32 warps where there are 4
# features: __shared__, __shfl_xor_sync
# bug: uninitialised
# caught: checked
# line: float v = sums[threadIdx.x & 31];

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void row_sum(const float* x, float* out, int cols) {
    __shared__ float sums[32];
    float acc = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) acc += x[blockIdx.x * cols + c];
    for (int offset = 16; offset > 0; offset >>= 1) acc += __shfl_xor_sync(0xffffffff, acc, offset);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x / 32] = acc;
    __syncthreads();
    float v = sums[threadIdx.x & 31];
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffff, v, offset);
    if (threadIdx.x == 0) out[blockIdx.x] = v;
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
    return [torch.randn(6, 400)]


def get_init_inputs():
    return []
