"""GELU in its tanh form for the CPU: as a sigmoid, from a polynomial exponential in SIMD."""

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

extern "C" void gelu_tanh(const float* x, float* y, int64_t count) {
    #pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; ++i) {
        float v = x[i];
        // 0.5 (1 + tanh(w / 2)) is the sigmoid of w; from exp(-|w|), which cannot overflow.
        float w = v * (1.59576912f + 0.0713548163f * v * v);
        float e = exponential(-std::fabs(w));
        y[i] = v * (w < 0.0f ? e : 1.0f) / (1.0f + e);
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


kernel = build(SOURCE).gelu_tanh
kernel.restype = None
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), x.numel())
        return y
