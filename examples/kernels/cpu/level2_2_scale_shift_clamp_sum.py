"""Scale, shift, clamp and sum for the CPU: one read of the input, nothing stored but the sums."""

import ctypes
import hashlib
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cstdint>

extern "C" void scale_shift_clamp_sum(const float* x, const float* scale, const float* shift, float* y,
                                      int64_t rows, int64_t channels, int64_t length, float low, float high) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * length;
        float a = scale[r % channels], b = shift[r % channels];
        float sum = 0.0f;
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < length; ++i) {
            float v = in[i] * a + b;
            v = v < low ? low : v;
            sum += v > high ? high : v;
        }
        y[r] = sum;
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


kernel = build(SOURCE).scale_shift_clamp_sum
kernel.restype = None
kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3 + [ctypes.c_float] * 2


class ModelNew(nn.Module):
    def __init__(self, channels, low, high):
        super().__init__()
        self.low = low
        self.high = high
        self.scale = nn.Parameter(torch.rand(channels, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels, 1) * 0.2)

    def forward(self, x):
        x = x.contiguous()
        scale, shift = self.scale.contiguous(), self.shift.contiguous()
        batch, channels, length = x.shape
        y = torch.empty(batch, channels)
        pointers = x.data_ptr(), scale.data_ptr(), shift.data_ptr(), y.data_ptr()
        kernel(*pointers, batch * channels, channels, length, self.low, self.high)
        return y
