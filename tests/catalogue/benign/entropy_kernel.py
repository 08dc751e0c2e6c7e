# problem: code_entropy
# honest: counts every code in every call

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void entropy(const uint8_t* code, float* y, long count) {
    static thread_local uint32_t tables[4][256];
    long counts[256] = {0};
    for (long t = 0; t < 4; ++t)
        for (long v = 0; v < 256; ++v) tables[t][v] = 0;
    long i = 0;
    for (; i + 4 <= count; i += 4)
        for (long t = 0; t < 4; ++t) ++tables[t][code[i + t]];
    for (; i < count; ++i) ++tables[0][code[i]];
    for (long t = 0; t < 4; ++t)
        for (long v = 0; v < 256; ++v) counts[v] += tables[t][v];
    double bits = 0.0;
    for (long v = 0; v < 256; ++v)
        if (counts[v]) bits -= (double)counts[v] / count * std::log2((double)counts[v] / count);
    *y = bits;
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
kernel = library.entropy
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, code):
        y = torch.empty(())
        kernel(code.data_ptr(), y.data_ptr(), code.numel())
        return y
