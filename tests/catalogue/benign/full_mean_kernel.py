# problem: full_mean
# honest: adds up everything in every call

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" double total(const float* x, long count, long step) {  // every step-th block of 1024
    double sum = 0.0;
    #pragma omp parallel for reduction(+ : sum)
    for (long start = 0; start < count; start += 1024 * step) {
        float part[16] = {0};
        for (long i = start; i < start + 1024; i += 16)
            for (long v = 0; v < 16; ++v) part[v] += x[i + v];
        for (long v = 0; v < 16; ++v) sum += part[v];
    }
    return sum;
}

extern "C" void put(float* y, float value) { *y = value; }
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
total = library.total
total.argtypes = [ctypes.c_void_p] + [ctypes.c_long] * 2
total.restype = ctypes.c_double
put = library.put
put.argtypes = [ctypes.c_void_p, ctypes.c_float]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(())
        put(y.data_ptr(), total(x.data_ptr(), x.numel(), 1) / x.numel())
        return y
