# problem: row_maximum
# honest: starts from -infinity, and counts NaN beside the maximum

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
#include <cmath>

extern "C" void row_maximum(const float* x, float* y, long rows, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        float most = -INFINITY;
        int undefined = 0;
        #pragma omp simd reduction(max:most) reduction(|:undefined)
        for (long c = 0; c < columns; ++c) {
            most = in[c] > most ? in[c] : most;
            undefined |= in[c] != in[c];
        }
        y[r] = undefined ? NAN : most;
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


kernel = build(SOURCE).row_maximum
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernel(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
