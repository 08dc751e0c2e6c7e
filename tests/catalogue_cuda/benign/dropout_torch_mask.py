# problem: dropout_train
# honest: torch's dropout draws the mask, so that the random stream is the reference's; the rest is one kernel

import torch
import torch.nn as nn
import torch.nn.functional as F
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void gated(const float* x, const float* mask, const float* gain, float* y, long long count,
                                 long long columns) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float v = x[i] * mask[i];
        y[i] = v / (1.0f + expf(-v)) * gain[i % columns];
    }
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("gated")


class CurrentStream:
    """torch's current stream, as cuda.core wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def __init__(self, columns, probability):
        super().__init__()
        self.probability = probability
        self.gain = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        mask = F.dropout(torch.ones_like(x), self.probability, self.training)
        y = torch.empty_like(x)
        pointers = (x.data_ptr(), mask.data_ptr(), self.gain.data_ptr(), y.data_ptr())
        launch(CurrentStream(), LaunchConfig(grid=2048, block=256), kernel, *pointers, x.numel(), x.shape[1])
        return y
