# problem: cholesky_factor
# honest: factors every matrix anew, row by row

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <vector>

extern "C" void factor(const float* a, float* l, long n) {  // row by row
    for (long i = 0; i < n * n; ++i) l[i] = 0.0f;
    for (long i = 0; i < n; ++i)
        for (long j = 0; j <= i; ++j) {
            const float *one = l + i * n, *two = l + j * n;
            float part[16] = {0}, sum = 0.0f;
            long k = 0;
            for (; k + 16 <= j; k += 16)
                for (long v = 0; v < 16; ++v) part[v] += one[k + v] * two[k + v];
            for (; k < j; ++k) sum += one[k] * two[k];
            for (long v = 0; v < 16; ++v) sum += part[v];
            const float rest = a[i * n + j] - sum;
            l[i * n + j] = i == j ? std::sqrt(rest) : rest / two[j];
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


kernel = build(SOURCE).factor
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, a):
        factor = torch.empty_like(a)
        kernel(a.data_ptr(), factor.data_ptr(), a.shape[0])
        return factor
