# style: a table of pointers to the weights of every layer, a bias read past its end
# features: pointers in memory
# bug: out of bounds
# caught: checked
# line: float acc = bias[c + 1];

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
struct Shape { const float* first; int rows, cols; };

// table: the address of every layer's weight and bias
extern "C" __global__ void layers(Shape shape, const long long* table, float* out, int count) {
    extern __shared__ float row[];
    const int c = threadIdx.x;
    row[c] = shape.first[blockIdx.x * shape.cols + c];
    __syncthreads();
    for (int layer = 0; layer < count; ++layer) {
        const float* weight = reinterpret_cast<const float*>(table[2 * layer]);
        const float* bias = reinterpret_cast<const float*>(table[2 * layer + 1]);
        float acc = bias[c + 1];
        for (int k = 0; k < shape.cols; ++k) acc = fmaf(weight[c * shape.cols + k], row[k], acc);
        __syncthreads();
        row[c] = acc < 0.0f ? 0.0f : acc;
        __syncthreads();
    }
    out[blockIdx.x * shape.cols + c] = row[c];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("layers")


class Shape(ctypes.Structure):
    _fields_ = (("first", ctypes.c_void_p), ("rows", ctypes.c_int), ("cols", ctypes.c_int))


class ModelNew(nn.Module):
    def __init__(self, features, count):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, features) for _ in range(count))

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        tensors = [tensor.data.to(x.device) for layer in self.layers for tensor in (layer.weight, layer.bias)]
        table = torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64).to(x.device)
        out = torch.empty_like(x)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = LaunchConfig(grid=rows, block=cols, shmem_size=4 * cols)
        shape = Shape(x.data_ptr(), rows, cols)
        launch(stream, config, kernel, shape, table.data_ptr(), out.data_ptr(), ctypes.c_int(len(self.layers)))
        return out


class Model(nn.Module):
    def __init__(self, features, count):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, features) for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def get_inputs():
    return [torch.randn(5, 40)]


def get_init_inputs():
    return [40, 3]
