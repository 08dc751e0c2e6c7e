# problem: softmax_rows
# dtype: bfloat16
# honest: softmax with differences, exponentials and their total in float32, rounded once

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <vector>
#include <cstdint>
#include <cstring>

static inline float widen(uint16_t h) {
    uint32_t b = (uint32_t)h << 16;
    float f;
    std::memcpy(&f, &b, 4);
    return f;
}

static inline uint16_t narrow(float f) {  // to the nearest, ties to even
    uint32_t b;
    std::memcpy(&b, &f, 4);
    return f != f ? 0x7fc0 : (uint16_t)((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
}

extern "C" void softmax(const uint16_t* x, uint16_t* y, long rows, long columns) {
    #pragma omp parallel
    {
        std::vector<float> terms(columns);
        #pragma omp for
        for (long r = 0; r < rows; ++r) {
            const uint16_t* in = x + r * columns;
            float most = widen(in[0]);
            bool undefined = false;
            for (long c = 0; c < columns; ++c) {
                const float v = widen(in[c]);
                undefined |= v != v;
                most = v > most ? v : most;
            }
            float total = 0.0f;
            for (long c = 0; c < columns; ++c) {
                terms[c] = undefined ? NAN : std::exp(widen(in[c]) - most);
                total = total + terms[c];
            }
            for (long c = 0; c < columns; ++c) y[r * columns + c] = narrow(terms[c] / total);
        }
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


kernel = build(SOURCE).softmax
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
