"""Running sum along rows in CUDA C++: one block a row, four elements a thread, a carry from tile to tile."""

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
#define THREADS 256
#define WARPS (THREADS / 32)

extern "C" __global__ void __launch_bounds__(THREADS)
row_cumsum(const float* __restrict__ x, float* __restrict__ y, long long columns, int aligned) {
    __shared__ float totals[2][WARPS];  // two copies, used in turn: one barrier a tile is enough
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const float* in = x + (long long)blockIdx.x * columns;
    float* out = y + (long long)blockIdx.x * columns;

    float carry = 0.0f;
    int turn = 0;
    for (long long base = 0; base < columns; base += THREADS * 4, turn ^= 1) {
        const long long i = base + (long long)threadIdx.x * 4;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (aligned) {
            if (i < columns) v = *reinterpret_cast<const float4*>(in + i);
        } else {
            if (i < columns) v.x = in[i];
            if (i + 1 < columns) v.y = in[i + 1];
            if (i + 2 < columns) v.z = in[i + 2];
            if (i + 3 < columns) v.w = in[i + 3];
        }

        // Running sum of the thread's own four elements.
        v.y += v.x;
        v.z += v.y;
        v.w += v.z;

        // Inclusive scan of the threads' totals within the warp.
        float sum = v.w;
        #pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            float other = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += other;
        }
        if (lane == 31) totals[turn][warp] = sum;
        float before = __shfl_up_sync(0xffffffffu, sum, 1);
        if (lane == 0) before = 0.0f;
        __syncthreads();

        // Totals of the warps before this one, and of the whole tile.
        float prefix = 0.0f, tile = 0.0f;
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            if (w == warp) prefix = tile;
            tile += totals[turn][w];
        }

        const float offset = carry + (prefix + before);
        v.x += offset;
        v.y += offset;
        v.z += offset;
        v.w += offset;
        carry += tile;

        if (aligned) {
            if (i < columns) *reinterpret_cast<float4*>(out + i) = v;
        } else {
            if (i < columns) out[i] = v.x;
            if (i + 1 < columns) out[i + 1] = v.y;
            if (i + 2 < columns) out[i + 2] = v.z;
            if (i + 3 < columns) out[i + 3] = v.w;
        }
    }
}
"""

THREADS = 256

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("row_cumsum")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel() == 0:
            return y
        columns = x.shape[-1]
        rows = x.numel() // columns
        aligned = columns % 4 == 0 and x.data_ptr() % 16 == 0 and y.data_ptr() % 16 == 0
        config = LaunchConfig(grid=rows, block=THREADS)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, config, kernel, x.data_ptr(), y.data_ptr(), columns, ctypes.c_int(int(aligned)))
        return y
