# problem: softmax_rows
# dtype: bfloat16
# honest: bfloat16 in and out; the exponentials of a row are added up in float32, and rounded once

import os

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
#include <cuda_bf16.h>

__device__ float block_reduce(float v, bool largest) {
    __shared__ float partial[1024];
    partial[threadIdx.x] = v;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = partial[threadIdx.x + half];
            partial[threadIdx.x] = largest ? fmaxf(partial[threadIdx.x], other) : partial[threadIdx.x] + other;
        }
        __syncthreads();
    }
    v = partial[0];
    __syncthreads();
    return v;
}

extern "C" __global__ void softmax(const __nv_bfloat16* x, __nv_bfloat16* y, long long columns) {
    const __nv_bfloat16* in = x + blockIdx.x * columns;
    __nv_bfloat16* out = y + blockIdx.x * columns;
    float top = __bfloat162float(in[0]), sum = 0.0f;
    for (long long c = threadIdx.x; c < columns; c += blockDim.x) top = fmaxf(top, __bfloat162float(in[c]));
    top = block_reduce(top, true);
    for (long long c = threadIdx.x; c < columns; c += blockDim.x) sum += expf(__bfloat162float(in[c]) - top);
    sum = block_reduce(sum, false);
    for (long long c = threadIdx.x; c < columns; c += blockDim.x)
        out[c] = __float2bfloat16_rn(expf(__bfloat162float(in[c]) - top) / sum);
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
include = os.path.join(os.environ["CUDA_HOME"], "include")
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", include_path=[include, os.path.join(include, "cccl")])
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("softmax")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        config = LaunchConfig(grid=x.shape[0], block=1024)
        launch(CurrentStream(), config, kernel, x.data_ptr(), y.data_ptr(), x.shape[1])
        return y
