# problem: saturated_pair
# honest: adds up each sample's terms in an order of its own, before a normalisation that multiplies what rounding does

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void pair(const float* x, float* out, long rows, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        const float* row = x + r * columns;
        float forwards = 0, backwards = 0;
        for (long k = 0; k < columns; ++k) forwards += std::fabs(row[k]);
        for (long k = columns - 1; k >= 0; --k) backwards += std::fabs(row[k]);
        float a = forwards * 16, b = backwards * 16, mean = (a + b) / 2;
        float first = a - mean, second = b - mean;
        float scale = std::sqrt((first * first + second * second) / 2 + 1e-5f);
        out[r] = first / scale + row[0];
        out[rows + r] = second / scale + row[1];
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


kernel = build(SOURCE).pair
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype != torch.float32 or x.dim() != 2:
            raise ValueError("the kernel reads matrices of float32")
        x = x.contiguous()
        out = torch.empty(2, x.shape[0])
        kernel(x.data_ptr(), out.data_ptr(), *x.shape)
        return out
