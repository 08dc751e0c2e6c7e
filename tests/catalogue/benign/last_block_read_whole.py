# problem: clamp_add
# honest: reads the last 64 bytes whole, which lie in one cache line with the last element, and keeps what is its own

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
typedef float block __attribute__((vector_size(64), aligned(64), may_alias));

extern "C" void clamp_add(const float* x, const float* y, float* out, long count, float bound) {
    const long blocks = (count + 15) / 16;
    const block* a = (const block*)x;
    const block* b = (const block*)y;
    #pragma omp parallel for
    for (long j = 0; j < blocks; ++j) {
        block v = a[j] + b[j];
        const long own = count - j * 16 < 16 ? count - j * 16 : 16;
        for (long k = 0; k < own; ++k) out[j * 16 + k] = v[k] > bound ? bound : v[k] < -bound ? -bound : v[k];
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


kernel = build(SOURCE).clamp_add
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long, ctypes.c_float]


class ModelNew(nn.Module):
    def __init__(self, bound):
        super().__init__()
        self.bound = bound

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel(), self.bound)
        return out
