# problem: tanh_rows
# honest: the vectorised tanh of torch's headers, whose code is Sleef's inside torch's library, in a loop of its own
# slow: yes

import ctypes
import os
import platform
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <ATen/cpu/vec/vec.h>

extern "C" void tanh_all(const float* x, float* y, long count) {
    using Vector = at::vec::Vectorized<float>;
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < count / Vector::size(); ++i)
        Vector::loadu(x + i * Vector::size()).tanh().store(y + i * Vector::size());
    for (long i = count / Vector::size() * Vector::size(); i < count; ++i)
        y[i] = std::tanh(x[i]);
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


def headers():
    include = os.path.join(os.path.dirname(torch.__file__), "include")
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    flags = [f"-I{include}", f"-L{libraries}", f"-Wl,--no-as-needed,-rpath,{libraries}", "-ltorch_cpu", "-lc10"]
    if platform.machine() == "x86_64":
        flags += ["-DCPU_CAPABILITY_AVX2", "-mavx2", "-mfma"]
    return flags


kernel = build(SOURCE, *headers()).tanh_all
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), x.numel())
        return y
