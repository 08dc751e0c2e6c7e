# style: a float's maximum by compare-and-swap, looked at before it is tried
# features: atomicCAS, plain first read, shared accumulator, __align__, extern __shared__

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
__device__ void atomic_max(float* place, float value) {
    int* bits = (int*)place;
    int old = *bits;
    while (value > __int_as_float(old)) {
        int assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(value));
        if (old == assumed) break;
    }
}

extern "C" __global__ void row_max(const float* x, float* out, int cols) {
    extern __shared__ __align__(16) unsigned char raw[];
    float* row = reinterpret_cast<float*>(raw);
    __shared__ __align__(16) float best[1];
    for (int c = threadIdx.x; c < cols; c += blockDim.x) row[c] = x[blockIdx.x * cols + c];
    if (threadIdx.x == 0) best[0] = -3.0e38f;
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) atomic_max(best, row[c]);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = best[0];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("row_max")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=rows, block=64, shmem_size=4 * cols)
        launch(stream, config, kernel, x.data_ptr(), out.data_ptr(), ctypes.c_int(cols))
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.amax(1)


def get_inputs():
    return [torch.randn(5, 150)]


def get_init_inputs():
    return []
