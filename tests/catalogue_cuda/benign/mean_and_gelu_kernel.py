# problem: mean_and_gelu
# honest: both outputs of a row in one pass over memory

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
__device__ float block_sum(float v) {
    __shared__ float partial[32];
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffffu, v, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
    if (threadIdx.x < 32)
        for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffffu, v, offset);
    if (threadIdx.x == 0) partial[0] = v;
    __syncthreads();
    v = partial[0];
    __syncthreads();
    return v;
}

__device__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

extern "C" __global__ void mean_and_gelu(const float* x, float* means, float* y, long long columns) {
    const float* in = x + blockIdx.x * columns;
    float sum = 0.0f;
    for (long long c = threadIdx.x; c < columns; c += blockDim.x) {
        sum += in[c];
        y[blockIdx.x * columns + c] = gelu(in[c]);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) means[blockIdx.x] = sum / columns;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("mean_and_gelu")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x):
        means, y = x.new_empty(x.shape[0]), torch.empty_like(x)
        arguments = (x.data_ptr(), means.data_ptr(), y.data_ptr(), x.shape[1])
        launch(CurrentStream(), LaunchConfig(grid=x.shape[0], block=256), kernel, *arguments)
        return means, y
