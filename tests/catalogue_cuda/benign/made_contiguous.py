# problem: masked_log
# honest: makes its transposed input contiguous first, and returns a contiguous result

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void masked_log(const float* x, const float* y, float* out, long long count) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        out[i] = y[i] < -1.0f ? __int_as_float(0xff800000) : logf(x[i]);
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("masked_log")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(y)
        arguments = (x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel())
        launch(CurrentStream(), LaunchConfig(grid=2048, block=256), kernel, *arguments)
        return out
