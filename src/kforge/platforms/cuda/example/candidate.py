"""The same module in CUDA C++: one pass over memory, four columns a thread, compiled by NVRTC when imported."""

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void leaky_relu_scale(const float4* __restrict__ x, const float4* __restrict__ scale,
                                            float4* __restrict__ y, long long count, long long columns, float slope) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float4 v = x[i];
        float4 s = scale[i % columns];
        v.x = (v.x > 0.0f ? v.x : slope * v.x) * s.x;
        v.y = (v.y > 0.0f ? v.y : slope * v.y) * s.y;
        v.z = (v.z > 0.0f ? v.z : slope * v.z) * s.z;
        v.w = (v.w > 0.0f ? v.w : slope * v.w) * s.w;
        y[i] = v;
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("leaky_relu_scale")
blocks = 16 * device.properties.multiprocessor_count


def check(*tensors):
    """A kernel reads memory by address: another dtype or layout, or a gradient, would be silently wrong."""
    for tensor in tensors:
        if tensor.dtype != torch.float32 or not tensor.is_contiguous() or tensor.device.type != "cuda":
            layout = f"{tensor.dtype} with strides {tensor.stride()} on {tensor.device}"
            raise ValueError(f"the kernel reads contiguous float32 on cuda, and was given {layout}")
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError("this module has no backward: call it under torch.no_grad()")


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        check(x, self.scale)
        if self.scale.shape != x.shape[-1:]:
            raise ValueError(f"rows have {x.shape[-1]} elements, and scale has {tuple(self.scale.shape)}")
        y = torch.empty_like(x)
        # Python integers arrive as 64 bits; other types are named.
        arguments = (x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.numel() // 4, x.shape[-1] // 4)
        config = LaunchConfig(grid=blocks, block=256)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, config, kernel, *arguments, ctypes.c_float(self.slope))
        return y
