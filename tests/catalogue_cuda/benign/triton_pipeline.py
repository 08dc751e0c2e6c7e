# problem: two_outputs
# platform: triton
# honest: two kernels: the mean squares, then the quotients

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_square(x_ptr, energy_ptr, columns, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((block,), dtype=tl.float32)
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        total += x * x
    tl.store(energy_ptr + row, tl.sum(total, axis=0) / columns)


@triton.jit
def divide(x_ptr, energy_ptr, y_ptr, columns, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns)
    scale = 1.0 / tl.sqrt(tl.load(energy_ptr + row) + 1e-6)
    tl.store(y_ptr + row * columns + at, x * scale, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y, energy = torch.empty_like(x), x.new_empty(rows)
        mean_square[(rows,)](x, energy, columns, block=1024)
        divide[(rows, triton.cdiv(columns, 1024))](x, energy, y, columns, block=1024)
        return y, energy
