# problem: first_largest
# honest: finds the largest value, then its first place; the first NaN goes before it

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void first_largest(const float* x, long* y, long rows, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        float most = in[0];
        #pragma omp simd reduction(max:most)
        for (long c = 1; c < columns; ++c) most = in[c] > most ? in[c] : most;
        long place = 0;
        while (place < columns && in[place] == in[place]) ++place;
        if (place == columns)
            for (place = 0; in[place] != most;) ++place;
        y[r] = place;
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


kernel = build(SOURCE).first_largest
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=torch.int64)
        kernel(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
