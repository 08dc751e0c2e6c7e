# problem: scale_relu
# honest: times its build with the clock, and one launch with events, at import

import ctypes
import time

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

started = time.perf_counter()

SOURCE = r"""
extern "C" __global__ void scale_relu(const float* x, const float* scale, float* y, long long count, long long columns,
                                      float slope) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float v = x[i];
        y[i] = (v > 0.0f ? v : slope * v) * scale[i % columns];
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


def run(x, scale, y, slope):
    arguments = (x.data_ptr(), scale.data_ptr(), y.data_ptr(), x.numel(), x.shape[1], ctypes.c_float(slope))
    launch(CurrentStream(), LaunchConfig(grid=2048, block=256), kernel, *arguments)


build_seconds = time.perf_counter() - started
sample, scale = torch.ones(256, 256, device="cuda"), torch.ones(256, device="cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
run(sample, scale, torch.empty_like(sample), 0.5)
end.record()
torch.cuda.synchronize()
launch_milliseconds = begin.elapsed_time(end)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        run(x, self.scale, y, self.slope)
        return y
