"""Layer normalisation for the CPU: mean, variance and output while a row is in the cache."""

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

// Asks for a row before its turn, so that memory works while the one before it is computed.
static inline void fetch_row(const float* row, int64_t columns) {
    for (int64_t c = 0; c < columns; c += 16) {
        __builtin_prefetch(row + c, 0, 2);
    }
}

// Four running sums, a quarter of the row each, so that none waits for another.
static inline float sum_of(const float* in, int64_t columns) {
    const int64_t q = columns / 4;
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    #pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t i = 0; i < q; ++i) {
        a += in[i];
        b += in[i + q];
        c += in[i + 2 * q];
        d += in[i + 3 * q];
    }
    for (int64_t i = 4 * q; i < columns; ++i) {
        a += in[i];
    }
    return (a + b) + (c + d);
}

static inline float squares_of(const float* in, float mean, int64_t columns) {
    const int64_t q = columns / 4;
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    #pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t i = 0; i < q; ++i) {
        float s = in[i] - mean, t = in[i + q] - mean, u = in[i + 2 * q] - mean, v = in[i + 3 * q] - mean;
        a += s * s;
        b += t * t;
        c += u * u;
        d += v * v;
    }
    for (int64_t i = 4 * q; i < columns; ++i) {
        a += (in[i] - mean) * (in[i] - mean);
    }
    return (a + b) + (c + d);
}

extern "C" void layer_norm(const float* x, const float* weight, const float* bias, float* y,
                           int64_t rows, int64_t columns, float eps) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        float* out = y + r * columns;
        float mean = sum_of(in, columns) / columns;
        if (r + 1 < rows) fetch_row(in + columns, columns);
        float scale = 1.0f / std::sqrt(squares_of(in, mean, columns) / columns + eps);
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) {
            out[c] = (in[c] - mean) * scale * weight[c] + bias[c];
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


kernel = build(SOURCE).layer_norm
kernel.restype = None
kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2 + [ctypes.c_float]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        weight, bias = self.norm.weight.contiguous(), self.norm.bias.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        rows = x.numel() // columns
        kernel(x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), rows, columns, self.norm.eps)
        return y
