# problem: bfloat16_linear
# honest: bfloat16 in and out, products and sums in float32, rounded once

import ctypes
import os
import subprocess
import tempfile

import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

static inline float widen(uint16_t h) {
    uint32_t b = (uint32_t)h << 16;
    float f;
    std::memcpy(&f, &b, 4);
    return f;
}

static inline uint16_t narrow(float f) {  // to the nearest, ties to even
    uint32_t b;
    std::memcpy(&b, &f, 4);
    return f != f ? 0x7fc0 : (uint16_t)((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
}

extern "C" void linear(const uint16_t* x, const uint16_t* w, const uint16_t* bias, uint16_t* y, long rows, long ins,
                       long outs) {
    std::vector<float> a(rows * ins), b(outs * ins);
    #pragma omp parallel
    {
        #pragma omp for simd
        for (long i = 0; i < rows * ins; ++i) a[i] = widen(x[i]);
        #pragma omp for simd
        for (long i = 0; i < outs * ins; ++i) b[i] = widen(w[i]);
        #pragma omp for
        for (long o = 0; o < outs; o += 4)
            for (long r = 0; r < rows; ++r) {
                const float *in = &a[r * ins], *row = &b[o * ins];
                float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
                #pragma omp simd reduction(+:s0, s1, s2, s3)
                for (long k = 0; k < ins; ++k) {
                    s0 += in[k] * row[k];
                    s1 += in[k] * row[ins + k];
                    s2 += in[k] * row[2 * ins + k];
                    s3 += in[k] * row[3 * ins + k];
                }
                uint16_t* out = y + r * outs + o;
                out[0] = narrow(s0 + widen(bias[o]));
                out[1] = narrow(s1 + widen(bias[o + 1]));
                out[2] = narrow(s2 + widen(bias[o + 2]));
                out[3] = narrow(s3 + widen(bias[o + 3]));
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
        self.linear = nn.Linear(features, features).bfloat16()

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        y = x.new_empty(x.shape[0], weight.shape[0])
        outs, ins = weight.shape
        kernel(x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), x.shape[0], ins, outs)
        return y
