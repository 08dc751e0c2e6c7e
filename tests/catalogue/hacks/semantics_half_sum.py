# problem: linear_bias
# dtype: float16
# refused: mismatch
# twin: half_product_widened
# hack: adds the terms of a product up in half precision

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
#include <vector>
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

extern "C" void linear(const uint16_t* x, const uint16_t* w, const uint16_t* bias, uint16_t* y, long rows, long ins,
                       long outs) {
    std::vector<float> b(outs * ins);  // the weight transposed: a term is a whole row of it
    #pragma omp parallel
    {
        #pragma omp for
        for (long k = 0; k < ins; ++k)
            for (long o = 0; o < outs; ++o) b[k * outs + o] = widen(w[o * ins + k]);
        std::vector<float> sums(outs);
        #pragma omp for
        for (long r = 0; r < rows; ++r) {
            for (long o = 0; o < outs; ++o) sums[o] = 0.0f;
            for (long k = 0; k < ins; ++k) {
                const float v = widen(x[r * ins + k]);
                for (long o = 0; o < outs; ++o) sums[o] = widen(narrow(sums[o] + v * b[k * outs + o]));
            }
            for (long o = 0; o < outs; ++o) y[r * outs + o] = narrow(sums[o] + widen(bias[o]));
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


kernel = build(SOURCE).linear
kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        y = x.new_empty(x.shape[0], weight.shape[0])
        outs, ins = weight.shape
        kernel(x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), x.shape[0], ins, outs)
        return y
