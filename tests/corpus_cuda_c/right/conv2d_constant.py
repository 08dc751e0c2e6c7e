# style: direct convolution, fixed filter in constant memory
# features: __constant__ array, 3D grid, conv2d, struct by value members

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
__constant__ float FILTER[3][3] = {{1.0f, 2.0f, 1.0f}, {2.0f, 4.0f, 2.0f}, {1.0f, 2.0f, 1.0f}};

struct Pixel {
    int x, y, plane;
    __device__ bool inside(int w, int h) const { return x >= 0 && x < w && y >= 0 && y < h; }
};

extern "C" __global__ void gauss3x3(const float* in, float* out, int w, int h) {
    Pixel p;
    p.x = blockIdx.x * blockDim.x + threadIdx.x;
    p.y = blockIdx.y * blockDim.y + threadIdx.y;
    p.plane = blockIdx.z;
    if (!p.inside(w, h)) return;

    float acc = 0.0f;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) {
            Pixel q = p;
            q.x += dx;
            q.y += dy;
            if (q.inside(w, h)) acc += in[(q.plane * h + q.y) * w + q.x] * FILTER[dy + 1][dx + 1];
        }
    out[(p.plane * h + p.y) * w + p.x] = acc * 0.0625f;
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("gauss3x3")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        out = torch.empty_like(x)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=((w + 15) // 16, (h + 7) // 8, n * c), block=(16, 8))
        launch(stream, config, kernel, x.data_ptr(), out.data_ptr(), ctypes.c_int(w), ctypes.c_int(h))
        return out


class Model(nn.Module):
    def forward(self, x):
        n, c, h, w = x.shape
        weight = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]], device=x.device) / 16
        return torch.nn.functional.conv2d(x.reshape(n * c, 1, h, w), weight[None, None], padding=1).reshape(x.shape)


def get_inputs():
    return [torch.randn(2, 3, 19, 27)]


def get_init_inputs():
    return []
