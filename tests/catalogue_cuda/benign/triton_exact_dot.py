# problem: matmul_epilogue
# platform: triton
# honest: tl.dot is told to multiply in full float32

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, scale_ptr, bias_ptr, c_ptr, size, block: tl.constexpr, step: tl.constexpr):
    rows = tl.program_id(0) * block + tl.arange(0, block)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    total = tl.zeros((block, block), dtype=tl.float32)
    for start in range(0, size, step):
        inner = start + tl.arange(0, step)
        a = tl.load(a_ptr + rows[:, None] * size + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * size + columns[None, :])
        total += tl.dot(a, b, input_precision="ieee")
    scale, bias = tl.load(scale_ptr + columns), tl.load(bias_ptr + columns)
    total = tl.where(total < 0.0, 0.0, total) * scale[None, :] + bias[None, :]
    tl.store(c_ptr + rows[:, None] * size + columns[None, :], total)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)
        self.scale = nn.Parameter(torch.rand(size) + 0.5)
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x):
        y, size = torch.empty_like(x), x.shape[0]
        product[(size // 64, size // 64)](x, self.weight, self.scale, self.bias, y, size, block=64, step=32)
        return y
