# problem: mean_and_series
# dtype: bfloat16
# honest: rounds every intermediate result to bfloat16, as eager's operators do

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

static const float factors[] = {0.5f, -0.25f, 0.125f, 0.3f, -0.2f, 0.1f, 0.05f, -0.02f};

static inline float rounded(float f) { return widen(narrow(f)); }

extern "C" void series(const uint16_t* x, uint16_t* means, uint16_t* totals, long rows, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        float sum = 0.0f;
        for (long c = 0; c < columns; ++c) {
            const float v = widen(x[r * columns + c]), wave = rounded(std::cos(v));
            sum += v;
            float total = factors[7];
            for (int k = 6; k >= 0; --k) total = rounded(rounded(total * wave) + rounded(factors[k]));
            totals[r * columns + c] = narrow(total);
        }
        means[r] = narrow(sum / columns);
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


kernel = build(SOURCE).series
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        means, totals = x.new_empty(x.shape[0]), torch.empty_like(x)
        kernel(x.data_ptr(), means.data_ptr(), totals.data_ptr(), *x.shape)
        return means, totals
