"""RMS normalisation times a SiLU gate for the CPU: both inputs read once, one output written."""

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

// Four running sums, a quarter of the row each, so that none waits for another.
static inline float squares_of(const float* in, int64_t columns) {
    const int64_t q = columns / 4;
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    #pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t i = 0; i < q; ++i) {
        a += in[i] * in[i];
        b += in[i + q] * in[i + q];
        c += in[i + 2 * q] * in[i + 2 * q];
        d += in[i + 3 * q] * in[i + 3 * q];
    }
    for (int64_t i = 4 * q; i < columns; ++i) {
        a += in[i] * in[i];
    }
    return (a + b) + (c + d);
}

extern "C" void rms_norm_silu_gate(const float* x, const float* gate, const float* weight, float* y,
                                   int64_t rows, int64_t columns, float eps) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        const float* g = gate + r * columns;
        float* out = y + r * columns;
        float scale = 1.0f / std::sqrt(squares_of(in, columns) / columns + eps);
        if (r + 1 < rows) fetch_row(in + columns, columns);
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) {
            // The sigmoid from exp(-|g|), which cannot overflow.
            float e = exponential(-std::fabs(g[c]));
            float silu = g[c] * (g[c] < 0.0f ? e : 1.0f) / (1.0f + e);
            out[c] = in[c] * scale * weight[c] * silu;
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


kernel = build(SOURCE).rms_norm_silu_gate
kernel.restype = None
kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2 + [ctypes.c_float]


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, gate):
        x, gate, weight = x.contiguous(), gate.contiguous(), self.weight.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        pointers = x.data_ptr(), gate.data_ptr(), weight.data_ptr(), y.data_ptr()
        kernel(*pointers, x.numel() // columns, columns, self.eps)
        return y
