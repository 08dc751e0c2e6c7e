# problem: linear_bias
# dtype: bfloat16
# refused: mismatch
# twin: bfloat16_linear_tiled
# hack: adds the 1024 terms of a product up in bfloat16, one after the other

import os

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
#include <cuda_bf16.h>

// Tiles of 32 x 32; the sizes are multiples of 32.
extern "C" __global__ void linear(const __nv_bfloat16* x, const __nv_bfloat16* w, const __nv_bfloat16* bias,
                                  __nv_bfloat16* y, long long ins, long long outs) {
    __shared__ float a[32][33], b[32][33];
    int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    long long row = blockIdx.y * 32 + ty, first = blockIdx.x * 32;
    float sum = 0.0f;
    for (long long k = 0; k < ins; k += 32) {
        a[ty][tx] = __bfloat162float(x[row * ins + k + tx]);
        b[ty][tx] = __bfloat162float(w[(first + ty) * ins + k + tx]);
        __syncthreads();
        for (int i = 0; i < 32; ++i) sum = __bfloat162float(__float2bfloat16_rn(sum + a[ty][i] * b[tx][i]));
        __syncthreads();
    }
    y[row * outs + first + tx] = __float2bfloat16_rn(sum + __bfloat162float(bias[first + tx]));
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
include = os.path.join(os.environ["CUDA_HOME"], "include")
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", include_path=[include, os.path.join(include, "cccl")])
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("linear")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def run(x, layer, y):
    pointers = (x.data_ptr(), layer.weight.data_ptr(), layer.bias.data_ptr(), y.data_ptr())
    config = LaunchConfig(grid=(layer.out_features // 32, x.shape[0] // 32), block=1024)
    launch(CurrentStream(), config, kernel, *pointers, layer.in_features, layer.out_features)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        run(x, self.linear, y)
        return y
