# style: one warp per row, value and index shuffled together, ties to the lower index
# features: __shfl_down_sync on float and int, int64 output, argmax, __int_as_float

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void argmax_rows(const float* x, long long* out, int cols) {
    const float* row = x + (long long)blockIdx.x * cols;
    float best = __int_as_float(0xff800000);
    int place = 0x7fffffff;
    for (int c = threadIdx.x; c < cols; c += 32)
        if (row[c] > best) {
            best = row[c];
            place = c;
        }
    for (int offset = 16; offset > 0; offset >>= 1) {
        float other = __shfl_down_sync(0xffffffff, best, offset);
        int where = __shfl_down_sync(0xffffffff, place, offset);
        if (other > best || (other == best && where < place)) {
            best = other;
            place = where;
        }
    }
    if (threadIdx.x == 0) out[blockIdx.x] = place;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("argmax_rows")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, dtype=torch.int64, device=x.device)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, LaunchConfig(grid=rows, block=32), kernel, x.data_ptr(), out.data_ptr(), ctypes.c_int(cols))
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.argmax(1)


def get_inputs():
    return [torch.randn(31, 203)]


def get_init_inputs():
    return []
