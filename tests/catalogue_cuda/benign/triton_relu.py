# problem: relu_of_uniform
# platform: triton
# honest: a rectifier in one pass, which keeps NaN

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, y_ptr, count, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(y_ptr + at, tl.where(x < 0.0, 0.0, x), mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), block=2048)
        return y
