"""Linear, GELU and residual for the CPU: the library's product, then one pass for all the rest."""

import ctypes
import hashlib
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cstdint>

// The normal distribution function: 0.5 + x P(x^2) / Q(x^2), a minimax fit on |x| < 5.6 (error 1e-8).
static inline float normal_cdf(float x) {
    float u = x * x;
    u = u > 31.36f ? 31.36f : u;
    float p = 2.2144145e-8f;
    p = p * u + 6.3560365e-6f;
    p = p * u + 1.7383312e-4f;
    p = p * u + 4.7071526e-3f;
    p = p * u + 3.4374798e-2f;
    p = p * u + 3.9894222e-1f;
    float q = 1.1801401e-6f;
    q = q * u + 7.5094216e-5f;
    q = q * u + 1.9128828e-3f;
    q = q * u + 2.8939269e-2f;
    q = q * u + 2.5283056e-1f;
    q = q * u + 1.0f;
    float f = 0.5f + x * p / q;
    f = x > 5.6f ? 1.0f : f;
    return x < -5.6f ? 0.0f : f;
}

// h holds the product; it becomes x + gelu(h + bias).
extern "C" void bias_gelu_residual(float* h, const float* x, const float* bias,
                                   int64_t rows, int64_t columns) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float* out = h + r * columns;
        const float* in = x + r * columns;
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) {
            float v = out[c] + bias[c];
            out[c] = in[c] + v * normal_cdf(v);
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


kernel = build(SOURCE).bias_gelu_residual
kernel.restype = None
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        x = x.contiguous()
        bias = self.linear.bias.contiguous()
        y = torch.nn.functional.linear(x, self.linear.weight.detach())
        columns = x.shape[-1]
        kernel(y.data_ptr(), x.data_ptr(), bias.data_ptr(), x.numel() // columns, columns)
        return y
