# style: a histogram in shared memory, its last barrier forgotten
# features: __shared__, atomicAdd
# bug: missing barrier
# caught: checked
# line: atomicAdd(&bins[x[i]], 1);

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void histogram(const int* x, float* out, int n) {
    __shared__ int bins[64];
    bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[x[i]], 1);
    out[threadIdx.x] = float(bins[threadIdx.x]);
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("histogram")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.int()
        out = torch.empty(64, device=x.device)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, LaunchConfig(grid=1, block=64), kernel, x.data_ptr(), out.data_ptr(), ctypes.c_int(x.numel()))
        return out


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=64).float()


def get_inputs():
    return [torch.randint(0, 64, (1000,))]


def get_init_inputs():
    return []
