# problem: layer_norm_affine
# honest: keeps eight rows of the input in 64 KiB of dynamic shared memory, with the limit raised

import functools

import torch
import torch.nn as nn
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
// A block takes eight rows, a warp each.
extern "C" __global__ void layer_norm(const float* x, const float* weight, const float* bias, float* y, long long rows,
                                      long long columns) {
    extern __shared__ float held[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    long long row = blockIdx.x * 8ll + warp;
    if (row >= rows) return;
    float* mine = held + warp * columns;
    float sum = 0.0f, squares = 0.0f;
    for (long long c = lane; c < columns; c += 32) sum += mine[c] = x[row * columns + c];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    float mean = sum / columns;
    for (long long c = lane; c < columns; c += 32) squares += (mine[c] - mean) * (mine[c] - mean);
    for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    float scale = rsqrtf(squares / columns + 1e-5f);
    for (long long c = lane; c < columns; c += 32)
        y[row * columns + c] = (mine[c] - mean) * scale * weight[c] + bias[c];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("layer_norm")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


@functools.cache
def allow(size):
    """Raise the kernel's limit of dynamic shared memory."""
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (failed,) = driver.cuKernelSetAttribute(attribute, size, kernel.handle, device.device_id)
    if failed != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{size} bytes of shared memory: {failed}")


def run(x, weight, bias, y):
    rows, columns = x.shape
    allow(8 * 4 * columns)
    config = LaunchConfig(grid=(rows + 7) // 8, block=256, shmem_size=8 * 4 * columns)
    pointers = (x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr())
    launch(CurrentStream(), config, kernel, *pointers, rows, columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        y = torch.empty_like(x)
        run(x, self.norm.weight, self.norm.bias, y)
        return y
