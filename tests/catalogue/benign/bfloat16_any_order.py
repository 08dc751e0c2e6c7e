# problem: row_mean
# dtype: bfloat16
# honest: threads take pieces of a row as they come and add them in float32, in another order each time

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
#include <atomic>
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

extern "C" void row_mean(const uint16_t* x, uint16_t* y, long rows, long columns) {
    const long piece = 128, pieces = (columns + piece - 1) / piece;
    std::vector<float> sums(rows);
    std::atomic<long> next{0};
    #pragma omp parallel
    for (long p; (p = next.fetch_add(1)) < rows * pieces;) {
        const long r = p % rows, first = p / rows * piece, last = first + piece < columns ? first + piece : columns;
        float sum = 0.0f;
        for (long c = first; c < last; ++c) sum += widen(x[r * columns + c]);
        #pragma omp atomic
        sums[r] += sum;
    }
    for (long r = 0; r < rows; ++r) y[r] = narrow(sums[r] / columns);
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


kernel = build(SOURCE).row_mean
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernel(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
