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

// exp(x) to about one unit in the last place; 0 below the normal range, infinity above it, NaN for NaN.
static inline float exponential(float x) {
    float c = -87.4f > x ? -87.4f : x;
    c = 89.0f < c ? 89.0f : c;
    const float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    float shifted = c * 1.44269504f + round;
    float n = shifted - round;
    float r = c - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    // 2^n in two factors, for n reaches 128.
    int32_t bits;
    std::memcpy(&bits, &shifted, 4);
    int32_t k = bits - 0x4B400000;
    int32_t half = k >> 1;
    int32_t low = (half + 127) << 23, high = (k - half + 127) << 23;
    float a, b;
    std::memcpy(&a, &low, 4);
    std::memcpy(&b, &high, 4);
    float y = p * a * b;
    return x < -87.3f ? 0.0f : y;
}

extern "C" void softmax(const float* x, float* y, int64_t rows, int64_t columns) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        float* out = y + r * columns;
        float top = -INFINITY;
        #pragma omp simd reduction(max : top)
        for (int64_t c = 0; c < columns; ++c) {
            top = in[c] > top ? in[c] : top;
        }
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
    folder = os.environ.get("KFORGE_BUILD_DIR") or os.path.join(tempfile.gettempdir(), f"kforge-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    library = os.path.join(folder, f"{key}.so")
    if not os.path.exists(library):
        code = os.path.join(folder, f"{key}.cpp")
        with open(code, "w") as file:
            file.write(source)
        partial = f"{library}.{os.getpid()}"
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
