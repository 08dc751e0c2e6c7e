# problem: first_step
# honest: multiplies the state as well, though it is zero at first

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

SOURCE = r"""
#include <cmath>
#include <vector>
extern "C" void run(const float* x, const float* h, const float* wx, const float* wh, float* y, long rows, long n, long lazy) {
    std::vector<float> total(n, 0.f);
    if (lazy) for (long o = 0; o < n; ++o) { float s = 0; for (long k = 0; k < n; ++k) s += wh[o * n + k]; total[o] = s; }
    #pragma omp parallel for
    for (long b = 0; b < rows; b += 4)
        for (long o = 0; o < n; ++o) {
            float s[4] = {0};
            for (int i = 0; i < 4; ++i) { float t = 0;
                #pragma omp simd reduction(+:t)
                for (long k = 0; k < n; ++k) t += x[(b + i) * n + k] * wx[o * n + k];
                s[i] = t; }
            if (lazy) for (int i = 0; i < 4; ++i) s[i] += h[(b + i) * n] * total[o];
            else for (int i = 0; i < 4; ++i) { float t = 0;
                #pragma omp simd reduction(+:t)
                for (long k = 0; k < n; ++k) t += h[(b + i) * n + k] * wh[o * n + k];
                s[i] += t; }
            for (int i = 0; i < 4; ++i) y[(b + i) * n + o] = std::tanh(s[i]);
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


lib = build(SOURCE, "-fno-math-errno")


def ptr(t):
    return ctypes.c_void_p(t.data_ptr())


L = ctypes.c_long


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.wx = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.wh = nn.Parameter(torch.randn(features, features) / features**0.5)

    def forward(self, x, h):
        y = torch.empty_like(x)
        lib.run(ptr(x), ptr(h), ptr(self.wx), ptr(self.wh), ptr(y), L(x.shape[0]), L(x.shape[1]), L(0))
        return y
