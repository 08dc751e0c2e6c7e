# problem: hidden_and_residual
# honest: writes the hidden state twice, each output into memory of its own

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
__device__ float hidden(float v) {
    v += 0.5f;
    return (v < 0.0f ? 0.0f : v) * 0.25f;
}

extern "C" __global__ void hidden_twice(const float4* x, float4* one, float4* two, long long count) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float4 v = x[i];
        one[i] = two[i] = make_float4(hidden(v.x), hidden(v.y), hidden(v.z), hidden(v.w));
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("hidden_twice")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x):
        one, two = torch.empty_like(x), torch.empty_like(x)
        arguments = (x.data_ptr(), one.data_ptr(), two.data_ptr(), x.numel() // 4)
        launch(CurrentStream(), LaunchConfig(grid=4096, block=256), kernel, *arguments)
        return one, two
