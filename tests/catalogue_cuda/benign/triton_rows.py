# problem: scale_relu
# platform: triton
# honest: a program for each row, in blocks

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_relu(x_ptr, scale_ptr, y_ptr, columns, slope, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        x = tl.load(x_ptr + row + at, mask=at < columns)
        y = tl.where(x > 0, x, slope * x) * tl.load(scale_ptr + at, mask=at < columns)
        tl.store(y_ptr + row + at, y, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        scale_relu[(x.shape[0],)](x, self.scale, y, x.shape[1], self.slope, block=2048, num_warps=8)
        return y
