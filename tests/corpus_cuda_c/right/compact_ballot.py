# style: stream compaction by votes, one warp per row
# features: __ballot_sync, __popc, lane mask, __shared__ counter

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
// Moves the positive values of a row to its front, in order; the rest is zero.
extern "C" __global__ void compact(const float* x, float* y, int cols) {
    __shared__ int written;
    const int lane = threadIdx.x;
    const float* src = x + blockIdx.x * cols;
    float* dst = y + blockIdx.x * cols;
    if (lane == 0) written = 0;
    __syncthreads();
    for (int base = 0; base < cols; base += 32) {
        const int i = base + lane;
        const float v = i < cols ? src[i] : 0.0f;
        const unsigned int mask = __ballot_sync(0xffffffffu, v > 0.0f);
        const int place = written + __popc(mask & ((1u << lane) - 1u));
        if (v > 0.0f) dst[place] = v;
        __syncthreads();
        if (lane == 0) written += __popc(mask);
        __syncthreads();
    }
    for (int i = written + lane; i < cols; i += 32) dst[i] = 0.0f;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("compact")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, LaunchConfig(grid=rows, block=32), kernel, x.data_ptr(), y.data_ptr(), ctypes.c_int(cols))
        return y


class Model(nn.Module):
    def forward(self, x):
        order = torch.argsort((x <= 0).int(), dim=1, stable=True)
        return torch.gather(x.clamp_min(0), 1, order)


def get_inputs():
    return [torch.randn(19, 77)]


def get_init_inputs():
    return []
