# problem: largest_and_bent
# honest: computes a small and a large output in one pass and returns both

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>

static void largest_of(const float* x, float* largest, long row, long columns) {
    float top = x[row * columns];
    long unknown = 0;
    #pragma omp simd reduction(max:top) reduction(+:unknown)
    for (long c = 0; c < columns; ++c) {
        float v = x[row * columns + c];
        top = v > top ? v : top;
        unknown += v != v;
    }
    largest[row] = unknown ? std::nanf("") : top;
}

static void bend(const float* x, float* bent, long from, long to) {
    for (long i = from; i < to; ++i) {
        float v = x[i], held = v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v;
        bent[i] = v * std::sqrt(std::fabs(v) + 1.0f) - 0.5f * held;
    }
}

extern "C" void both(const float* x, float* largest, float* bent, long rows, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        largest_of(x, largest, r, columns);
        bend(x, bent, r * columns, (r + 1) * columns);
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


kernel = build(SOURCE, "-fno-math-errno").both
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        largest, bent = x.new_empty(x.shape[0]), torch.empty_like(x)
        kernel(x.data_ptr(), largest.data_ptr(), bent.data_ptr(), x.shape[0], x.shape[1])
        return largest, bent
