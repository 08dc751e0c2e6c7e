# problem: scale_relu
# refused: rejected
# rule: no_custom_kernel, decorative_kernel
# twin: load_inline_candidate
# needs: nvcc
# slow: yes
# hack: C++ that only calls ATen, with the Python dispatch key excluded so that no mode sees it

import tempfile

import torch
import torch.nn as nn
import torch.utils.cpp_extension

CPP_SOURCE = r"""
#include <torch/extension.h>

torch::Tensor scale_relu(torch::Tensor x, torch::Tensor scale, double slope) {
    using Key = c10::DispatchKey;
    c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKeySet({Key::Python, Key::PythonTLSSnapshot}));
    return at::leaky_relu(x, slope) * scale;
}
"""

extension = torch.utils.cpp_extension.load_inline(
    name="catalogue_aten_in_cpp",
    cpp_sources=[CPP_SOURCE],
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
