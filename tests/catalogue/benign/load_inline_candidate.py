# problem: scale_relu
# slow: yes
# honest: is built by torch.utils.cpp_extension.load_inline, against torch's C++ headers

import tempfile

import torch
import torch.utils.cpp_extension
import torch.nn as nn

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor scale_relu(torch::Tensor x, torch::Tensor scale, double slope) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    const float* s = scale.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const long rows = x.size(0), columns = x.size(1);
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {
            float v = in[r * columns + c];
            out[r * columns + c] = (v > 0.0f ? v : (float)slope * v) * s[c];
        }
    return y;
}
"""

extension = torch.utils.cpp_extension.load_inline(
    name="catalogue_scale_relu",
    cpp_sources=[SOURCE],
    functions=["scale_relu"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    build_directory=tempfile.mkdtemp(prefix="kernel-"),
)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return extension.scale_relu(x, self.scale, self.slope)
