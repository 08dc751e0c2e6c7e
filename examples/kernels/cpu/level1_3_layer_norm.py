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

extern "C" void layer_norm(const float* x, const float* weight, const float* bias, float* y,
                           int64_t rows, int64_t columns, float eps) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        float* out = y + r * columns;
        float sum = 0.0f;
        #pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < columns; ++c) {
            sum += in[c];
        }
        float mean = sum / columns;
        float squares = 0.0f;
        #pragma omp simd reduction(+ : squares)
        for (int64_t c = 0; c < columns; ++c) {
            float d = in[c] - mean;
            squares += d * d;
        }
        float scale = 1.0f / std::sqrt(squares / columns + eps);
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
