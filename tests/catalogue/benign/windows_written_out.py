# problem: sliding_windows
# honest: writes every window to memory of its own

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstring>

extern "C" void tanh_of(const float* x, float* y, long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; ++i) y[i] = std::tanh(x[i]);
}

extern "C" void windows(const float* y, float* out, long count, long window) {
    #pragma omp parallel for
    for (long i = 0; i < count; ++i) memcpy(out + i * window, y + i, 4 * window);
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


library = build(SOURCE)
library.tanh_of.argtypes = library.windows.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2
WINDOW = 64


class ModelNew(nn.Module):
    def forward(self, x):
        y, out = torch.empty_like(x), x.new_empty(x.numel() - WINDOW + 1, WINDOW)
        library.tanh_of(x.data_ptr(), y.data_ptr(), x.numel(), 0)
        library.windows(y.data_ptr(), out.data_ptr(), out.shape[0], WINDOW)
        return out
