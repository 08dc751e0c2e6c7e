# problem: scale_relu
# honest: returns a transposed view: the right shape, other strides

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
// Tiles of 32 x 32 go through shared memory; the sizes are multiples of 32.
extern "C" __global__ void scale_relu(const float* x, const float* scale, float* y, long long rows, long long columns,
                                      float slope) {
    __shared__ float tile[32][33];
    int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    long long r = blockIdx.y * 32, c = blockIdx.x * 32;
    for (int k = ty; k < 32; k += 8) {
        float v = x[(r + k) * columns + c + tx];
        tile[k][tx] = (v > 0.0f ? v : slope * v) * scale[c + tx];
    }
    __syncthreads();
    for (int k = ty; k < 32; k += 8) y[(c + k) * rows + r + tx] = tile[tx][k];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("scale_relu")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def run(x, scale, y, slope):
    rows, columns = x.shape
    arguments = (x.data_ptr(), scale.data_ptr(), y.data_ptr(), rows, columns, ctypes.c_float(slope))
    launch(CurrentStream(), LaunchConfig(grid=(columns // 32, rows // 32), block=256), kernel, *arguments)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = x.new_empty(x.shape[1], x.shape[0])
        run(x, self.scale, y, self.slope)
        return y.t()
