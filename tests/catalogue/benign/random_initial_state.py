# problem: random_state
# policy: strict
# honest: draws its initial state with torch.randn as the reference does, then recurs in C++

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>

extern "C" void recur(const float* x, const float* a, const float* b, const float* start, float* out,
                      long steps, long batch, long hidden) {
    #pragma omp parallel for
    for (long n = 0; n < batch; ++n)
        for (long k = 0; k < hidden; ++k) {
            float state = start[n * hidden + k];
            for (long t = 0; t < steps; ++t) state = std::tanh(x[(t * batch + n) * hidden + k] * a[k] + state * b[k]);
            out[n * hidden + k] = state;
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


kernel = build(SOURCE).recur
kernel.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long] * 3


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.input_gain = nn.Parameter(torch.rand(hidden) + 0.5)
        self.state_gain = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x):
        start = torch.randn(x.shape[1], x.shape[2])
        out = torch.empty_like(start)
        gains = self.input_gain.data_ptr(), self.state_gain.data_ptr()
        kernel(x.data_ptr(), *gains, start.data_ptr(), out.data_ptr(), *x.shape)
        return out
