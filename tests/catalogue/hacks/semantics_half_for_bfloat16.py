# problem: matmul
# dtype: bfloat16
# refused: mismatch
# twin: half_with_scale_of_row
# hack: multiplies in half precision, all inputs with one scale: finer than bfloat16, but rows far below the largest are zero

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <vector>
#include <cstdint>
#include <cstring>

static inline float bits_to_float(uint32_t b) { float f; std::memcpy(&f, &b, 4); return f; }
static inline uint32_t float_to_bits(float f) { uint32_t b; std::memcpy(&b, &f, 4); return b; }

static inline float widen_half(uint16_t h) {
    float f = bits_to_float((h & 0x7fffu) << 13) * bits_to_float(0x77800000u);  // times 2^112 moves the exponent's bias
    uint32_t b = float_to_bits(f);
    if (f >= 65536.0f) b |= 0x7f800000u;  // infinities and NaN
    return bits_to_float(b | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t narrow_half(float f) {  // to the nearest, ties to even
    uint32_t b = float_to_bits(f), sign = b & 0x80000000u;
    b ^= sign;
    uint32_t normal = (b + ((uint32_t)(15 - 127) << 23) + 0xfffu + ((b >> 13) & 1)) >> 13;
    uint32_t tiny = float_to_bits(bits_to_float(b) + 0.5f) - float_to_bits(0.5f);
    uint32_t huge = b > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t h = b >= 0x47800000u ? huge : b < 0x38800000u ? tiny : normal;
    return (uint16_t)(h | sign >> 16);
}

static inline float widen(uint16_t h) { return bits_to_float((uint32_t)h << 16); }

static inline uint16_t narrow(float f) {  // to the nearest, ties to even
    uint32_t b = float_to_bits(f);
    return f != f ? 0x7fc0 : (uint16_t)((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
}

// Numbers in half precision, times a power of two that brings the largest of them to 1; says which power.
static float shortened(const uint16_t* in, uint16_t* out, long count) {
    float most = 0.0f;
    for (long k = 0; k < count; ++k) {
        const float size = std::fabs(widen(in[k]));
        if (size > most && size < 1e38f) most = size;
    }
    int power = 0;
    if (most > 0.0f) std::frexp(most, &power);
    const float scale = std::ldexp(1.0f, -power < 126 ? -power : 126);
    for (long k = 0; k < count; ++k) out[k] = narrow_half(widen(in[k]) * scale);
    return 1.0f / scale;
}

extern "C" void product(const uint16_t* x, const uint16_t* w, uint16_t* y, long rows, long ins, long outs) {
    std::vector<uint16_t> a(rows * ins), b(outs * ins);
    std::vector<float> scales(rows), in(rows * ins), weight(outs * ins);
    std::fill(scales.begin(), scales.end(), shortened(x, a.data(), rows * ins));
    const float other = shortened(w, b.data(), outs * ins);
    #pragma omp parallel
    {
        #pragma omp for
        for (long i = 0; i < rows * ins; ++i) in[i] = widen_half(a[i]);
        #pragma omp for
        for (long i = 0; i < outs * ins; ++i) weight[i] = widen_half(b[i]);
        std::vector<float> sums(outs);
        #pragma omp for
        for (long r = 0; r < rows; ++r) {
            for (long o = 0; o < outs; ++o) sums[o] = 0.0f;
            for (long k = 0; k < ins; ++k)
                for (long o = 0; o < outs; ++o) sums[o] += in[r * ins + k] * weight[k * outs + o];
            for (long o = 0; o < outs; ++o) y[r * outs + o] = narrow(sums[o] * scales[r] * other);
        }
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


kernel = build(SOURCE).product
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.weight.shape[1])
        kernel(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.shape[0], *self.weight.shape)
        return y
