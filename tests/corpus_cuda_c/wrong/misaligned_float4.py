# style: rows read by four, whatever their length
# features: float4, reinterpret_cast
# bug: misaligned
# caught: checked
# line: float4 q = row[c];

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void row_sum(const float* x, float* out, int cols) {
    const float4* row = reinterpret_cast<const float4*>(x + blockIdx.x * cols);
    float a = 0.0f;
    for (int c = threadIdx.x; c < cols / 4; c += 32) {
        float4 q = row[c];
        a += q.x + q.y + q.z + q.w;
    }
    if (threadIdx.x < cols % 4) a += x[blockIdx.x * cols + cols / 4 * 4 + threadIdx.x];
    for (int o = 16; o > 0; o >>= 1) a += __shfl_down_sync(0xffffffff, a, o);
    if (threadIdx.x == 0) out[blockIdx.x] = a;
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
        launch(stream, LaunchConfig(grid=rows, block=32), kernel, x.data_ptr(), out.data_ptr(), ctypes.c_int(cols))
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(4, 61)]


def get_init_inputs():
    return []
