"""The same module in CUDA C++: read and written in bfloat16, computed and summed in float32, rounded once."""

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
// bfloat16 is the upper half of a float32: two of them in 32 bits, eight in a uint4.
__device__ float low(unsigned int pair) { return __uint_as_float(pair << 16); }
__device__ float high(unsigned int pair) { return __uint_as_float(pair & 0xffff0000u); }

// To the nearest, ties to even; what is no number stays none.
__device__ unsigned int narrow(float value) {
    unsigned int bits = __float_as_uint(value);
    return value != value ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
__device__ unsigned int scaled(unsigned int pair, unsigned int scale, float factor) {
    return narrow(low(pair) * factor * low(scale)) | narrow(high(pair) * factor * high(scale)) << 16;
}
__device__ float squares(unsigned int pair) { return low(pair) * low(pair) + high(pair) * high(pair); }

// A block for each row; `count` is a row's length in uint4.
extern "C" __global__ void rms_norm(const uint4* __restrict__ x, const uint4* __restrict__ scale,
                                    uint4* __restrict__ y, long long count, float eps) {
    __shared__ float parts[32];
    const uint4* in = x + (long long)blockIdx.x * count;
    uint4* out = y + (long long)blockIdx.x * count;
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < count; i += blockDim.x) {
        uint4 v = in[i];
        sum += squares(v.x) + squares(v.y) + squares(v.z) + squares(v.w);
    }
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < blockDim.x / 32; ++warp) total += parts[warp];
    float factor = 1.0f / sqrtf(total / (float)(8 * count) + eps);
    for (long long i = threadIdx.x; i < count; i += blockDim.x) {
        uint4 v = in[i], s = scale[i];
        v.x = scaled(v.x, s.x, factor);
        v.y = scaled(v.y, s.y, factor);
        v.z = scaled(v.z, s.z, factor);
        v.w = scaled(v.w, s.w, factor);
        out[i] = v;
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("rms_norm")


def check(*tensors):
    """A kernel reads memory by address: another dtype or layout, or a gradient, would be silently wrong."""
    for tensor in tensors:
        if tensor.dtype != torch.bfloat16 or not tensor.is_contiguous() or tensor.device.type != "cuda":
            layout = f"{tensor.dtype} with strides {tensor.stride()} on {tensor.device}"
            raise ValueError(f"the kernel reads contiguous bfloat16 on cuda, and was given {layout}")
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError("this module has no backward: call it under torch.no_grad()")


class ModelNew(nn.Module):
    def __init__(self, columns, eps):
        super().__init__()
        self.eps = eps
        # Constructed like the reference's; whoever uses the module casts it to bfloat16.
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        check(x, self.scale)
        columns = x.shape[-1]
        if self.scale.shape != (columns,) or columns % 8:
            raise ValueError(f"rows have {columns} elements, not a multiple of 8, or scale has another number")
        y = torch.empty_like(x)
        arguments = (x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), columns // 8)
        config = LaunchConfig(grid=x.numel() // columns, block=256)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, config, kernel, *arguments, ctypes.c_float(self.eps))
        return y
