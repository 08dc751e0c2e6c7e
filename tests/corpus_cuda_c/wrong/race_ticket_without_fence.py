# style: one launch: a ticket by an atomic, and the last block adds the partial sums
# features: atomicAdd, static __shared__ in a helper, shuffles
# bug: race
# caught: checked
# line: a = threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0.0f;

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
__inline__ __device__ float block_sum(float v) {
    static __shared__ float sums[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (lane == 0) sums[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? sums[lane] : 0.0f;
    if (warp == 0) for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    return v;
}

extern "C" __global__ void total(const float* x, float* partial, unsigned int* counter, float* out, int n) {
    __shared__ bool last;
    float a = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a += x[i];
    a = block_sum(a);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = a;
        last = atomicAdd(counter, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        a = threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0.0f;
        a = block_sum(a);
        if (threadIdx.x == 0) {
            *out = a;
            *counter = 0;
        }
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("total")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        blocks = 6
        partial = torch.empty(blocks, device=x.device)
        counter = torch.zeros(1, dtype=torch.int32, device=x.device)
        out = torch.empty((), device=x.device)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        for _ in range(2):
            launch(
                stream,
                LaunchConfig(grid=blocks, block=128),
                kernel,
                x.data_ptr(),
                partial.data_ptr(),
                counter.data_ptr(),
                out.data_ptr(),
                ctypes.c_int(x.numel()),
            )
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum()


def get_inputs():
    return [torch.randn(5000)]


def get_init_inputs():
    return []
