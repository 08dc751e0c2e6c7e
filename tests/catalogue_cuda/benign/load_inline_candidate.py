# problem: scale_relu
# needs: nvcc
# slow: yes
# honest: is built by torch.utils.cpp_extension.load_inline, against torch's C++ headers

import tempfile

import torch
import torch.nn as nn
import torch.utils.cpp_extension

CPP_SOURCE = "torch::Tensor scale_relu(torch::Tensor x, torch::Tensor scale, double slope);"

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void scale_relu_kernel(const float* x, const float* scale, float* y, long count, long columns, float slope) {
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = (x[i] > 0.0f ? x[i] : slope * x[i]) * scale[i % columns];
}

torch::Tensor scale_relu(torch::Tensor x, torch::Tensor scale, double slope) {
    auto y = torch::empty_like(x);
    const long count = x.numel(), blocks = (count + 255) / 256;
    scale_relu_kernel<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(), count, x.size(1), (float)slope);
    return y;
}
"""

extension = torch.utils.cpp_extension.load_inline(
    name="catalogue_scale_relu",
    cpp_sources=[CPP_SOURCE],
    cuda_sources=[CUDA_SOURCE],
    functions=["scale_relu"],
    build_directory=tempfile.mkdtemp(prefix="kernel-"),
)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return extension.scale_relu(x, self.scale, self.slope)
