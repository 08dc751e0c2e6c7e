"""The same module in Triton: one pass over memory, a program for each row block."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def leaky_relu_scale(x_ptr, scale_ptr, y_ptr, columns, slope, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask)
        scale = tl.load(scale_ptr + offsets, mask=mask)
        y = tl.where(x > 0, x, slope * x) * scale
        tl.store(y_ptr + row * columns + offsets, y, mask=mask)


def check(*tensors):
    """A kernel reads memory by address: another dtype or layout, or a gradient, would be silently wrong."""
    for tensor in tensors:
        if tensor.dtype != torch.float32 or not tensor.is_contiguous() or tensor.device.type != "cuda":
            layout = f"{tensor.dtype} with strides {tensor.stride()} on {tensor.device}"
            raise ValueError(f"the kernel reads contiguous float32 on cuda, and was given {layout}")
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError("this module has no backward: call it under torch.no_grad()")


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        check(x, self.scale)
        if self.scale.shape != x.shape[-1:]:
            raise ValueError(f"rows have {x.shape[-1]} elements, and scale has {tuple(self.scale.shape)}")
        y = torch.empty_like(x)
        columns = x.shape[-1]
        leaky_relu_scale[(x.numel() // columns,)](x, self.scale, y, columns, self.slope, BLOCK=2048, num_warps=8)
        return y
