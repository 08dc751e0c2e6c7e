# problem: sorted_levels
# honest: sorts the parameter in every call, and compares in a kernel

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void place(const float* x, const float* order, float* y, long count, long levels) {
    #pragma omp parallel for
    for (long i = 0; i < count; ++i) {
        float below = 0.0f;
        for (long k = 0; k < levels; ++k) below += x[i] <= order[k] ? 0.0f : 1.0f;
        y[i] = below + order[levels - 1];
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


kernel = build(SOURCE).place
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.levels = nn.Parameter(torch.randn(levels))

    def forward(self, x):
        y = torch.empty_like(x)
        order = torch.sort(self.levels.detach()).values
        kernel(x.data_ptr(), order.data_ptr(), y.data_ptr(), x.numel(), order.numel())
        return y
