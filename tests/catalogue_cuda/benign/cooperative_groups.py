# problem: softmax_rows
# honest: reduces with the tiles of the cooperative groups header, a row to a tile of 32 threads

import os

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

extern "C" __global__ void softmax(const float* x, float* y, long long rows, long long columns) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    long long row = (long long)blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
    if (row >= rows) return;
    const float* in = x + row * columns;
    float top = in[0], sum = 0.0f;
    for (long long c = tile.thread_rank(); c < columns; c += 32) top = fmaxf(top, in[c]);
    top = cg::reduce(tile, top, cg::greater<float>());
    for (long long c = tile.thread_rank(); c < columns; c += 32) sum += expf(in[c] - top);
    sum = cg::reduce(tile, sum, cg::plus<float>());
    for (long long c = tile.thread_rank(); c < columns; c += 32) y[row * columns + c] = expf(in[c] - top) / sum;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
include = os.path.join(os.environ["CUDA_HOME"], "include")
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", include_path=[include, os.path.join(include, "cccl")])
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("softmax")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows, columns = x.shape
        config = LaunchConfig(grid=(rows + 7) // 8, block=256)
        launch(CurrentStream(), config, kernel, x.data_ptr(), y.data_ptr(), rows, columns)
        return y
