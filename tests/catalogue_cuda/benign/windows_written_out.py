# problem: sliding_windows
# honest: tanh once for each value, and then every window written out

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void tanh_of(const float* x, float* y, long long count) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = tanhf(x[i]);
}

extern "C" __global__ void windows_of(const float* y, float4* out, long long count, long long width) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const float* from = y + i / (width / 4) + i % (width / 4) * 4;
        out[i] = make_float4(from[0], from[1], from[2], from[3]);
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
module = Program(SOURCE, code_type="c++", options=options).compile("cubin")
tanh_kernel, windows_kernel = module.get_kernel("tanh_of"), module.get_kernel("windows_of")
WINDOW = 16


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x):
        y, windows = torch.empty_like(x), x.numel() - WINDOW + 1
        out = x.new_empty(windows, WINDOW)
        config = LaunchConfig(grid=(x.numel() + 255) // 256, block=256)
        launch(CurrentStream(), config, tanh_kernel, x.data_ptr(), y.data_ptr(), x.numel())
        config = LaunchConfig(grid=4096, block=256)
        launch(CurrentStream(), config, windows_kernel, y.data_ptr(), out.data_ptr(), windows * WINDOW // 4, WINDOW)
        return out
