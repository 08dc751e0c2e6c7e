# problem: sigmoid_rows
# honest: the logistic function by adding to the exponent's bits, which are held in range; NaN stays NaN

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

// 2^t: the whole part goes to the exponent's bits, a polynomial does the rest.
static inline float power_of_two(float t) {
    float whole = std::floor(t), f = t - whole;
    float p = 1.0f + f * (0.693147181f + f * (0.240226507f + f * (0.0555041087f + f * (0.00961812911f
        + f * (0.00133335581f + f * 0.000154035304f)))));
    uint32_t bits;
    std::memcpy(&bits, &p, 4);
    bits += (uint32_t)(int32_t)whole << 23;
    std::memcpy(&p, &bits, 4);
    return p;
}

extern "C" void sigmoid(const float* x, float* y, long count) {
    #pragma omp parallel for simd
    for (long i = 0; i < count; ++i) {
        float t = x[i] * -1.44269504f;
        t = t < -126.0f ? -126.0f : t;
        t = t > 128.0f ? 128.0f : t;  // infinity, and so zero
        y[i] = 1.0f / (1.0f + power_of_two(t));
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


kernel = build(SOURCE).sigmoid
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), x.numel())
        return y
