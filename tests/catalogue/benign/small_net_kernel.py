# problem: small_net
# honest: computes every row of sixteen in full

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

SOURCE = r"""
#include <cmath>
#include <cstring>
#include <cstdint>
#include <vector>
typedef float v8 __attribute__((vector_size(32), aligned(4)));
static const int H = 96;
// transposed weights: one[k][h], two[k][h], three[k][o]
static float one[16][H], two[H][H], three[H][16];
static void net(const float* x, float* y) {
    float a[H], b[H];
    for (int h = 0; h < H; ++h) a[h] = 0;
    for (int k = 0; k < 16; ++k) { const float v = x[k]; for (int h = 0; h < H; ++h) a[h] += v * one[k][h]; }
    for (int h = 0; h < H; ++h) b[h] = 0;
    for (int k = 0; k < H; ++k) { const float v = a[k]; if (v > 0) for (int h = 0; h < H; ++h) b[h] += v * two[k][h]; else if (v != v) for (int h = 0; h < H; ++h) b[h] = v; }
    float o[16] = {0};
    for (int k = 0; k < H; ++k) { const float v = b[k]; if (v > 0) for (int h = 0; h < 16; ++h) o[h] += v * three[k][h]; else if (v != v) for (int h = 0; h < 16; ++h) o[h] = v; }
    memcpy(y, o, 64);
}
static bool bring(const float* w1, const float* w2, const float* w3) {
    static std::vector<float> kept;
    const size_t n1 = 16 * H, n2 = H * H, n3 = 16 * H;
    if (kept.size() && !memcmp(kept.data(), w1, n1 * 4) && !memcmp(kept.data() + n1, w2, n2 * 4) && !memcmp(kept.data() + n1 + n2, w3, n3 * 4)) return false;
    kept.assign(w1, w1 + n1); kept.insert(kept.end(), w2, w2 + n2); kept.insert(kept.end(), w3, w3 + n3);
    for (int h = 0; h < H; ++h) for (int k = 0; k < 16; ++k) { one[k][h] = w1[h * 16 + k]; }
    for (int h = 0; h < H; ++h) for (int k = 0; k < H; ++k) two[k][h] = w2[h * H + k];
    for (int o = 0; o < 16; ++o) for (int k = 0; k < H; ++k) three[k][o] = w3[o * H + k];
    return true;
}

extern "C" void run(const float* x, const float* w1, const float* w2, const float* w3, float* y, long rows) {
    bring(w1, w2, w3);
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) net(x + r * 16, y + r * 16);
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


lib = build(SOURCE)


def ptr(t):
    return ctypes.c_void_p(t.data_ptr())


L = ctypes.c_long


class ModelNew(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.one = nn.Parameter(torch.randn(wide, 16) / 4)
        self.two = nn.Parameter(torch.randn(wide, wide) / wide**0.5)
        self.three = nn.Parameter(torch.randn(16, wide) / wide**0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        lib.run(ptr(x), ptr(self.one), ptr(self.two), ptr(self.three), ptr(y), L(x.shape[0]))
        return y
