# problem: layer_norm_affine
# dtype: bfloat16
# honest: statistics in float32, in two passes; the result is rounded once

import os

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
#include <cuda_bf16.h>

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

extern "C" __global__ void layer_norm(const __nv_bfloat16* x, const __nv_bfloat16* weight, const __nv_bfloat16* bias,
                                      __nv_bfloat16* y, long long columns) {
    const __nv_bfloat16* in = x + blockIdx.x * columns;
    __nv_bfloat16* out = y + blockIdx.x * columns;
    float sum = 0.0f, squares = 0.0f;
    for (long long c = threadIdx.x; c < columns; c += blockDim.x) sum += __bfloat162float(in[c]);
    float mean = block_sum(sum) / columns;
    for (long long c = threadIdx.x; c < columns; c += blockDim.x) {
        float away = __bfloat162float(in[c]) - mean;
        squares += away * away;
    }
    float scale = rsqrtf(block_sum(squares) / columns + 1e-5f);
    for (long long c = threadIdx.x; c < columns; c += blockDim.x) {
        float v = (__bfloat162float(in[c]) - mean) * scale;
        out[c] = __float2bfloat16_rn(v * __bfloat162float(weight[c]) + __bfloat162float(bias[c]));
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
include = os.path.join(os.environ["CUDA_HOME"], "include")
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", include_path=[include, os.path.join(include, "cccl")])
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("layer_norm")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def run(x, weight, bias, y):
    arguments = (x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), x.shape[1])
    launch(CurrentStream(), LaunchConfig(grid=x.shape[0], block=256), kernel, *arguments)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        y = torch.empty_like(x)
        run(x, self.norm.weight, self.norm.bias, y)
        return y
