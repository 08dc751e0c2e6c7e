# problem: scale_relu
# dtype: bfloat16
# backward: yes
# refused: mismatch
# twin: gradient_added_in_float32
# hack: adds the parameter's gradient up in bfloat16, over all rows

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <vector>
#include <cstdint>
#include <cstring>

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

extern "C" void forward(const uint16_t* x, const uint16_t* scale, uint16_t* y, long rows, long columns, float slope) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {
            const float v = widen(x[r * columns + c]);
            y[r * columns + c] = narrow((v > 0 ? v : slope * v) * widen(scale[c]));
        }
}

extern "C" void backward(const uint16_t* g, const uint16_t* x, const uint16_t* scale, uint16_t* dx, uint16_t* dscale,
                         long rows, long columns, float slope) {
    std::vector<float> sums(columns);
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {
            const long i = r * columns + c;
            const float v = widen(x[i]), side = v > 0 ? 1.0f : slope;
            dx[i] = narrow(widen(g[i]) * widen(scale[c]) * side);
            sums[c] = widen(narrow(sums[c] + widen(g[i]) * v * side));
        }
    for (long c = 0; c < columns; ++c) dscale[c] = narrow(sums[c]);
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


library = build(SOURCE)
library.forward.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_float]
library.backward.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long] * 2 + [ctypes.c_float]


class LeakyScale(torch.autograd.Function):
    @staticmethod
    def forward(context, x, scale, slope):
        context.save_for_backward(x, scale)
        context.slope = slope
        y = torch.empty_like(x)
        library.forward(x.data_ptr(), scale.data_ptr(), y.data_ptr(), *x.shape, slope)
        return y

    @staticmethod
    def backward(context, gradient):
        x, scale = context.saved_tensors
        gradient = gradient.contiguous()
        dx, dscale = torch.empty_like(x), torch.empty_like(scale)
        pointers = [tensor.data_ptr() for tensor in (gradient, x, scale, dx, dscale)]
        library.backward(*pointers, *x.shape, context.slope)
        return dx, dscale, None


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return LeakyScale.apply(x, self.scale, self.slope)
