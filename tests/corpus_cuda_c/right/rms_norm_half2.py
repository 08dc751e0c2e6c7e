# style: half storage, pairs at a time, float accumulation
# features: cuda_fp16.h, __half2, __half22float2, __floats2half2_rn, __shfl_xor_sync

import ctypes
import os

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
#include <cuda_fp16.h>

extern "C" __global__ void rms_norm(const __half2* x, const __half2* weight, __half2* y, int pairs, float eps) {
    const __half2* xr = x + (long long)blockIdx.x * pairs;
    __half2* yr = y + (long long)blockIdx.x * pairs;
    float acc = 0.0f;
    for (int i = threadIdx.x; i < pairs; i += 32) {
        float2 v = __half22float2(xr[i]);
        acc += v.x * v.x + v.y * v.y;
    }
    for (int offset = 16; offset > 0; offset >>= 1) acc += __shfl_xor_sync(0xffffffff, acc, offset);
    const float scale = rsqrtf(acc / (2 * pairs) + eps);
    for (int i = threadIdx.x; i < pairs; i += 32) {
        float2 v = __half22float2(xr[i]);
        float2 w = __half22float2(weight[i]);
        yr[i] = __floats2half2_rn(v.x * scale * w.x, v.y * scale * w.y);
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
include = os.path.join(os.environ["CUDA_HOME"], "include")
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", include_path=[include, os.path.join(include, "cccl")])
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("rms_norm")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim).half() + 0.5)

    def forward(self, x):
        x = x.contiguous()
        rows, dim = x.shape
        y = torch.empty_like(x)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        pointers = (x.data_ptr(), self.weight.data_ptr(), y.data_ptr())
        config = LaunchConfig(grid=rows, block=32)
        launch(stream, config, kernel, *pointers, ctypes.c_int(dim // 2), ctypes.c_float(1e-6))
        return y


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim).half() + 0.5)

    def forward(self, x):
        v = x.float()
        return (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight.float()).half()


def get_inputs():
    return [torch.randn(33, 150).half()]


def get_init_inputs():
    return [150]
