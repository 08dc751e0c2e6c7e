"""Softmax along rows for the CPU: each row is finished while it is in the cache."""

import ctypes
import hashlib
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

// exp(x) for x <= 0, relative error 2e-7 near 0, 1.3e-6 at -87; 0 below that, NaN for NaN.
static inline float exponential(float x) {
    float c = x < -87.3f ? -87.3f : x;
    // Adding this leaves the nearest integer, plus the exponent's bias, in the low bits of the sum.
    const float magic = 12582912.0f + 127.0f;
    float shifted = c * 1.44269504f + magic;
    float f = c * 1.44269504f - (shifted - magic);
    float p = 1.32647269e-3f;  // 2^f on [-1/2, 1/2], a minimax fit
    p = p * f + 9.67151266e-3f;
    p = p * f + 5.55073374e-2f;
    p = p * f + 2.40222421e-1f;
    p = p * f + 6.93146978e-1f;
    p = p * f + 1.0f;
    uint32_t bits;
    std::memcpy(&bits, &shifted, 4);
    bits <<= 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return x < -87.3f ? 0.0f : p * power;
}

// Asks for a row before its turn, so that memory works while the one before it is computed.
static inline void fetch_row(const float* row, int64_t columns) {
    for (int64_t c = 0; c < columns; c += 16) {
        __builtin_prefetch(row + c, 0, 2);
    }
}

// Four running maxima, a quarter of the row each, so that none waits for another.
static inline float largest(const float* in, int64_t columns) {
    const int64_t q = columns / 4;
    float a = -INFINITY, b = a, c = a, d = a;
    #pragma omp simd reduction(max : a, b, c, d)
    for (int64_t i = 0; i < q; ++i) {
        a = in[i] > a ? in[i] : a;
        b = in[i + q] > b ? in[i + q] : b;
        c = in[i + 2 * q] > c ? in[i + 2 * q] : c;
        d = in[i + 3 * q] > d ? in[i + 3 * q] : d;
    }
    for (int64_t i = 4 * q; i < columns; ++i) {
        a = in[i] > a ? in[i] : a;
    }
    a = b > a ? b : a;
    c = d > c ? d : c;
    return c > a ? c : a;
}

extern "C" void softmax(const float* x, float* y, int64_t rows, int64_t columns) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        float* out = y + r * columns;
        float top = largest(in, columns);
        if (r + 1 < rows) fetch_row(in + columns, columns);
        float sum = 0.0f;
        #pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < columns; ++c) {
            float e = exponential(in[c] - top);
            out[c] = e;
            sum += e;
        }
        float scale = 1.0f / sum;
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) {
            out[c] *= scale;
        }
    }
}
"""


def build(source):
    """Compile to a shared library once per source text, and load it."""
    flags = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]
    flags += ["-fopenmp", "-shared", "-fPIC", "-std=c++17"]
    key = hashlib.sha256((source + " ".join(flags)).encode()).hexdigest()[:20]
    default = os.path.join(tempfile.gettempdir(), f"kforge-{os.getuid()}")
    folder = os.environ.get("KFORGE_BUILD_DIR") or default
    os.makedirs(folder, mode=0o700, exist_ok=True)
    library = os.path.join(folder, f"{key}.so")
    if not os.path.exists(library):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            code, partial = os.path.join(scratch, f"{key}.cpp"), os.path.join(scratch, f"{key}.so")
            with open(code, "w") as file:
                file.write(source)
            command = [os.environ.get("CXX", "g++"), *flags, code, "-o", partial]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"compilation failed: {' '.join(command)}\n{done.stderr}")
            os.replace(partial, library)
    return ctypes.CDLL(library)


kernel = build(SOURCE).softmax
kernel.restype = None
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2


class ModelNew(nn.Module):
    def forward(self, scores):
        scores = scores.contiguous()
        weights = torch.empty_like(scores)
        columns = scores.shape[-1]
        kernel(scores.data_ptr(), weights.data_ptr(), scores.numel() // columns, columns)
        return weights
