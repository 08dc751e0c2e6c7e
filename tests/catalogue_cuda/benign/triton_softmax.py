# problem: softmax_rows
# platform: triton
# honest: a row fits into one block; one pass over memory

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, columns, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, block)
    x = tl.load(x_ptr + row + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row + at, e / tl.sum(e, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        y, (rows, columns) = torch.empty_like(x), x.shape
        softmax[(rows,)](x, y, columns, block=triton.next_power_of_2(columns), num_warps=8)
        return y
