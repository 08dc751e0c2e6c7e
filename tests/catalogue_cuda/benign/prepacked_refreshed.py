# problem: linear_bias
# honest: packs the weight once, and again whenever its version or its memory changes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
// packed is the weight transposed: packed[k * outs + o]
extern "C" __global__ void linear(const float* x, const float* packed, const float* bias, float* y, long long ins,
                                  long long outs) {
    long long o = blockIdx.x * 256ll + threadIdx.x, row = blockIdx.y * 4ll;
    if (o >= outs) return;
    float sums[4] = {bias[o], bias[o], bias[o], bias[o]};
    for (long long k = 0; k < ins; ++k) {
        float w = packed[k * outs + o];
        for (int r = 0; r < 4; ++r) sums[r] += x[(row + r) * ins + k] * w;
    }
    for (int r = 0; r < 4; ++r) y[(row + r) * outs + o] = sums[r];
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("linear")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.packed, self.packed_from = None, None

    def forward(self, x):
        weight = self.linear.weight
        now = (weight.data_ptr(), weight._version)
        if now != self.packed_from:
            self.packed, self.packed_from = weight.detach().t().contiguous(), now
        ins, outs = self.packed.shape
        y = x.new_empty(x.shape[0], outs)
        pointers = (x.data_ptr(), self.packed.data_ptr(), self.linear.bias.data_ptr(), y.data_ptr())
        config = LaunchConfig(grid=((outs + 255) // 256, x.shape[0] // 4), block=256)
        launch(CurrentStream(), config, kernel, *pointers, ins, outs)
        return y
