# problem: squared_relu
# dtype: float16
# honest: squares in float32; what half precision cannot hold is infinite

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cstdint>
#include <cstring>

static inline float bits_to_float(uint32_t b) { float f; std::memcpy(&f, &b, 4); return f; }
static inline uint32_t float_to_bits(float f) { uint32_t b; std::memcpy(&b, &f, 4); return b; }

static inline float widen(uint16_t h) {
    float f = bits_to_float((h & 0x7fffu) << 13) * bits_to_float(0x77800000u);  // times 2^112 moves the exponent's bias
    uint32_t b = float_to_bits(f);
    if (f >= 65536.0f) b |= 0x7f800000u;  // infinities and NaN
    return bits_to_float(b | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t narrow(float f) {  // to the nearest, ties to even
    uint32_t b = float_to_bits(f), sign = b & 0x80000000u;
    b ^= sign;
    uint32_t normal = (b + ((uint32_t)(15 - 127) << 23) + 0xfffu + ((b >> 13) & 1)) >> 13;
    uint32_t tiny = float_to_bits(bits_to_float(b) + 0.5f) - float_to_bits(0.5f);
    uint32_t huge = b > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t h = b >= 0x47800000u ? huge : b < 0x38800000u ? tiny : normal;
    return (uint16_t)(h | sign >> 16);
}

extern "C" void squared_relu(const uint16_t* x, uint16_t* y, long rows, long columns) {
    #pragma omp parallel for
    for (long i = 0; i < rows * columns; ++i) {
        const float v = widen(x[i]), positive = v < 0.0f ? 0.0f : v;
        y[i] = narrow(positive * positive);
    }
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


kernel = build(SOURCE).squared_relu
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
