# problem: scale_relu
# honest: as many blocks as the device holds at once, each looping over tiles that it draws from a counter

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void scale_relu(const float* x, const float* scale, float* y, long long count, long long columns,
                                      float slope, int* next) {
    __shared__ int tile;
    while (true) {
        if (threadIdx.x == 0) tile = atomicAdd(next, 1);
        __syncthreads();
        long long first = tile * 4096ll;
        __syncthreads();
        if (first >= count) return;
        for (long long i = first + threadIdx.x; i < first + 4096 && i < count; i += blockDim.x) {
            float v = x[i];
            y[i] = (v > 0.0f ? v : slope * v) * scale[i % columns];
        }
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("scale_relu")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


blocks = 4 * device.properties.multiprocessor_count


def run(x, scale, y, slope, counter):
    pointers = (x.data_ptr(), scale.data_ptr(), y.data_ptr())
    rest = (x.numel(), x.shape[1], ctypes.c_float(slope), counter.data_ptr())
    launch(CurrentStream(), LaunchConfig(grid=blocks, block=256), kernel, *pointers, *rest)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y, counter = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device=x.device)
        run(x, self.scale, y, self.slope, counter)
        return y
