# problem: drawn_buffer
# honest: reads the buffer in every call

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void relu_gain(const float* x, const float* gains, float* y, long rows, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {
            float v = x[r * columns + c];
            y[r * columns + c] = (v < 0.0f ? 0.0f : v) * gains[c];
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


kernel = build(SOURCE).relu_gain
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("gains", torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), self.gains.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
