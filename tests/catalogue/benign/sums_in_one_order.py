# problem: sum_by_chance
# honest: adds up in one order what the reference adds up in an order of chance, before a ReLU that leaves hardly anything

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <vector>

extern "C" void product(const float* x, const float* weight, float* out, long rows, long depth, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        std::vector<float> sums(columns, 0.0f);
        for (long k = 0; k < depth; ++k) {
            const float factor = x[r * depth + k];
            for (long c = 0; c < columns; ++c) sums[c] += factor * weight[k * columns + c];
        }
        for (long c = 0; c < columns; ++c) {
            const float y = sums[c] - 44.0f;
            out[r * columns + c] = std::isnan(y) ? y : (y > 0 ? y : 0.0f);
        }
    }
}
"""


def build(source, *flags):
    folder = tempfile.mkdtemp(prefix="kernel-")
    code, library = os.path.join(folder, "kernel.cpp"), os.path.join(folder, "kernel.so")
    with open(code, "w") as file:
        file.write(source)
    command = ["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-std=c++17", *flags, code, "-o", library]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("compilation failed: " + done.stderr)
    return ctypes.CDLL(library)


kernel = build(SOURCE).product
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(128, 256))

    def forward(self, x):
        if x.dtype != torch.float32 or x.dim() != 2 or x.shape[1] != self.weight.shape[0]:
            raise ValueError("the kernel reads matrices of float32")
        x, weight = x.contiguous(), self.weight.contiguous()
        out = torch.empty(x.shape[0], weight.shape[1])
        kernel(x.data_ptr(), weight.data_ptr(), out.data_ptr(), *x.shape, weight.shape[1])
        return out
