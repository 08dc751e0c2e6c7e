# style: textbook tree in shared memory, one atomicAdd per block
# features: __shared__, __syncthreads, atomicAdd on float, #define

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
#define BLOCK 256

extern "C" __global__ void sum_kernel(const float* x, float* out, int n) {
    __shared__ float cache[BLOCK];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x * 2 + threadIdx.x;

    // two elements per thread on the way in
    float v = i < n ? x[i] : 0.0f;
    if (i + BLOCK < n) v += x[i + BLOCK];
    cache[tid] = v;
    __syncthreads();

    for (unsigned int s = BLOCK / 2; s > 0; s >>= 1) {
        if (tid < s) cache[tid] += cache[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, cache[0]);
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("sum_kernel")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.zeros(1, device=x.device)
        n = x.numel()
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=(n + 511) // 512, block=256)
        launch(stream, config, kernel, x.data_ptr(), out.data_ptr(), ctypes.c_int(n))
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum().reshape(1)


def get_inputs():
    return [torch.rand(41, 87)]


def get_init_inputs():
    return []
