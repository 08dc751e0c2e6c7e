# style: one block per row, warp sums meet in shared memory
# features: __shfl_down_sync, rsqrtf, __device__ reduction with shared memory, float argument

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
__device__ float block_sum(float v, float* shared) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffffu, v, offset);
    __syncthreads();
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    float total = 0.0f;
    for (int w = 0; w < blockDim.x / 32; ++w) total += shared[w];
    return total;
}

extern "C" __global__ void layer_norm(const float* x, const float* weight, const float* bias, float* y,
                                      long long cols, float eps) {
    __shared__ float shared[32];
    const float* xr = x + blockIdx.x * cols;
    float* yr = y + blockIdx.x * cols;

    float sum = 0.0f;
    for (long long c = threadIdx.x; c < cols; c += blockDim.x) sum += xr[c];
    const float mean = block_sum(sum, shared) / cols;

    float square = 0.0f;
    for (long long c = threadIdx.x; c < cols; c += blockDim.x) square += (xr[c] - mean) * (xr[c] - mean);
    const float inverse = rsqrtf(block_sum(square, shared) / cols + eps);

    for (long long c = threadIdx.x; c < cols; c += blockDim.x) yr[c] = (xr[c] - mean) * inverse * weight[c] + bias[c];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("layer_norm")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        cols = x.shape[-1]
        y = torch.empty_like(x)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        pointers = (x.data_ptr(), self.norm.weight.data_ptr(), self.norm.bias.data_ptr(), y.data_ptr())
        config = LaunchConfig(grid=x.numel() // cols, block=128)
        launch(stream, config, kernel, *pointers, cols, ctypes.c_float(self.norm.eps))
        return y


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 7, 301) + 1]


def get_init_inputs():
    return [301]
