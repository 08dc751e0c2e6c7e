# problem: matmul_epilogue
# platform: triton
# honest: torch.mm does the product, and a Triton kernel what follows it

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def epilogue(y_ptr, scale_ptr, bias_ptr, columns, block: tl.constexpr):
    at = tl.program_id(1) * block + tl.arange(0, block)
    row = tl.program_id(0).to(tl.int64) * columns
    y = tl.load(y_ptr + row + at, mask=at < columns)
    scale, bias = tl.load(scale_ptr + at, mask=at < columns), tl.load(bias_ptr + at, mask=at < columns)
    tl.store(y_ptr + row + at, tl.where(y < 0.0, 0.0, y) * scale + bias, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)
        self.scale = nn.Parameter(torch.rand(size) + 0.5)
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x):
        y = torch.mm(x, self.weight)
        rows, columns = y.shape
        epilogue[(rows, triton.cdiv(columns, 1024))](y, self.scale, self.bias, columns, block=1024)
        return y
