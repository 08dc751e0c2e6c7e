# problem: window_mean
# honest: fills what lies past the end of the signal with zeros by itself

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void window_mean(const float* x, float* y, long long count, long long width) {
    __shared__ float tile[256 + 64];
    long long first = (long long)blockIdx.x * 256;
    for (long long t = threadIdx.x; t < 256 + width - 1; t += 256) tile[t] = first + t < count ? x[first + t] : 0.0f;
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < width; ++k) sum += tile[threadIdx.x + k];
    if (first + threadIdx.x < count) y[first + threadIdx.x] = sum / width;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("window_mean")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, x):
        y = torch.empty_like(x)
        config = LaunchConfig(grid=(x.numel() + 255) // 256, block=256)
        launch(CurrentStream(), config, kernel, x.data_ptr(), y.data_ptr(), x.numel(), self.width)
        return y
