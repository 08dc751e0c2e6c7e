# problem: softmax_rows
# honest: three kernels that hand partial results on: largest values, sums, quotients

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void largest(const float* x, float* tops, long long columns) {
    __shared__ float partial[256];
    float top = x[blockIdx.x * columns];
    for (long long c = threadIdx.x; c < columns; c += 256) top = fmaxf(top, x[blockIdx.x * columns + c]);
    partial[threadIdx.x] = top;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) tops[blockIdx.x] = partial[0];
}

extern "C" __global__ void exponentials(const float* x, const float* tops, float* y, float* sums, long long columns) {
    __shared__ float partial[256];
    float sum = 0.0f;
    for (long long c = threadIdx.x; c < columns; c += 256)
        sum += y[blockIdx.x * columns + c] = expf(x[blockIdx.x * columns + c] - tops[blockIdx.x]);
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

extern "C" __global__ void quotients(float* y, const float* sums, long long columns) {
    for (long long c = threadIdx.x; c < columns; c += 256) y[blockIdx.x * columns + c] /= sums[blockIdx.x];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
module = Program(SOURCE, code_type="c++", options=options).compile("cubin")
largest_kernel = module.get_kernel("largest")
exponentials_kernel = module.get_kernel("exponentials")
quotients_kernel = module.get_kernel("quotients")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x):
        y, (rows, columns) = torch.empty_like(x), x.shape
        tops, sums = x.new_empty(rows), x.new_empty(rows)
        stream, config = CurrentStream(), LaunchConfig(grid=rows, block=256)
        launch(stream, config, largest_kernel, x.data_ptr(), tops.data_ptr(), columns)
        pointers = (x.data_ptr(), tops.data_ptr(), y.data_ptr(), sums.data_ptr())
        launch(stream, config, exponentials_kernel, *pointers, columns)
        launch(stream, config, quotients_kernel, y.data_ptr(), sums.data_ptr(), columns)
        return y
