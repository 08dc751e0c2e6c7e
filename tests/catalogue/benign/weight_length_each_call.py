# problem: unit_weight_linear
# honest: takes the weight's length in every call

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void linear(const float* x, const float* w, float* y, long rows, long ins, long outs, float scale) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r)
        for (long o = 0; o < outs; ++o) {
            float sum = 0.0f;
            #pragma omp simd reduction(+:sum)
            for (long k = 0; k < ins; ++k) sum += x[r * ins + k] * w[o * ins + k];
            y[r * outs + o] = sum * scale;
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


kernel = build(SOURCE).linear
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3 + [ctypes.c_float]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features))

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.weight.shape[0])
        scale = 1.0 / float(torch.linalg.vector_norm(self.weight.detach()))
        rows, (outs, ins) = x.shape[0], self.weight.shape
        kernel(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), rows, ins, outs, scale)
        return y
