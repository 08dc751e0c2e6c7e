"""The same module for the CPU: read and written in bfloat16, computed and summed in float32, rounded once."""

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

// bfloat16 is the upper half of a float32.
static inline float widen(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// To the nearest, ties to even; what is no number stays none.
static inline uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? (uint16_t)0x7fc0 : (uint16_t)rounded;
}

extern "C" void rms_norm(const uint16_t* x, const uint16_t* scale, uint16_t* y,
                         int64_t rows, int64_t columns, float eps) {
    #pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        const uint16_t* in = x + r * columns;
        uint16_t* out = y + r * columns;
        float squares = 0.0f;
        #pragma omp simd reduction(+ : squares)
        for (int64_t c = 0; c < columns; ++c) {
            float v = widen(in[c]);
            squares += v * v;
        }
        float factor = 1.0f / std::sqrt(squares / (float)columns + eps);
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) {
            out[c] = narrow(widen(in[c]) * factor * widen(scale[c]));
        }
    }
}
"""


def build(source):
    """Compile to a shared library once per source text, and load it."""
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-std=c++17"]
    key = hashlib.sha256((source + " ".join(flags)).encode()).hexdigest()[:20]
    default = os.path.join(tempfile.gettempdir(), f"kforge-{os.getuid()}")
    folder = os.environ.get("KFORGE_BUILD_DIR", default)
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


kernel = build(SOURCE).rms_norm
kernel.restype = None
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2 + [ctypes.c_float]


def check(*tensors):
    """A kernel reads memory by address: another dtype or layout, or a gradient, would be silently wrong."""
    for tensor in tensors:
        if tensor.dtype != torch.bfloat16 or not tensor.is_contiguous() or tensor.device.type != "cpu":
            layout = f"{tensor.dtype} with strides {tensor.stride()} on {tensor.device}"
            raise ValueError(f"the kernel reads contiguous bfloat16 on cpu, and was given {layout}")
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError("this module has no backward: call it under torch.no_grad()")


class ModelNew(nn.Module):
    def __init__(self, columns, eps):
        super().__init__()
        self.eps = eps
        # Constructed like the reference's; whoever uses the module casts it to bfloat16.
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        check(x, self.scale)
        if self.scale.shape != x.shape[-1:]:
            raise ValueError(f"rows have {x.shape[-1]} elements, and scale has {tuple(self.scale.shape)}")
        y = torch.empty_like(x)
        columns = x.shape[-1]
        kernel(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.numel() // columns, columns, self.eps)
        return y
