# problem: two_outputs
# honest: adds by atomics into memory that it sets to zero in every call

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
// A row is summed by four blocks.
extern "C" __global__ void add_energy(const float* x, float* energies, long long columns) {
    const float* in = x + blockIdx.x * columns;
    float squares = 0.0f;
    for (long long c = blockIdx.y * blockDim.x + threadIdx.x; c < columns; c += gridDim.y * blockDim.x)
        squares += in[c] * in[c];
    for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_down_sync(0xffffffffu, squares, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(energies + blockIdx.x, squares / columns);
}

extern "C" __global__ void divide(const float* x, const float* energies, float* y, long long columns) {
    float scale = rsqrtf(energies[blockIdx.x] + 1e-6f);
    for (long long c = threadIdx.x; c < columns; c += blockDim.x)
        y[blockIdx.x * columns + c] = x[blockIdx.x * columns + c] * scale;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
module = Program(SOURCE, code_type="c++", options=options).compile("cubin")
add_energy_kernel = module.get_kernel("add_energy")
divide_kernel = module.get_kernel("divide")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def forward(self, x):
        y, energy = torch.empty_like(x), x.new_zeros(x.shape[0])
        rows, columns = x.shape
        config = LaunchConfig(grid=(rows, 4), block=256)
        launch(CurrentStream(), config, add_energy_kernel, x.data_ptr(), energy.data_ptr(), columns)
        arguments = (x.data_ptr(), energy.data_ptr(), y.data_ptr(), columns)
        launch(CurrentStream(), LaunchConfig(grid=rows, block=256), divide_kernel, *arguments)
        return y, energy
