# problem: wave
# honest: a thread computes one half of each call and is waited for; three times over, so it is not fast

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <thread>

static void wave_of(const float* __restrict x, float* __restrict y, long first, long last) {
    for (long i = first; i < last; ++i) y[i] = sinf(x[i]) * expf(-x[i] * x[i]);
}

// Right, and slower than eager: everything three times over.
static void slowly(const float* x, float* y, long first, long last) {
    for (int round = 0; round < 3; ++round) {
        wave_of(x, y, first, last);
        __asm__ volatile("" : : "r"(y) : "memory");
    }
}

extern "C" void wave(const float* x, float* y, long count) {
    std::thread other(slowly, x, y, count / 2, count);
    slowly(x, y, 0, count / 2);
    other.join();
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


kernel = build(SOURCE, "-ffast-math").wave
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), x.numel())
        return y
