"""The same module in Triton: read and written in bfloat16, computed and summed in float32, rounded once."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm(x_ptr, scale_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(x * x) / columns + eps)
    scale = tl.load(scale_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * columns + offsets, (x * factor * scale).to(y_ptr.dtype.element_ty), mask=mask)


def check(*tensors):
    """A kernel reads memory by address: another dtype or layout, or a gradient, would be silently wrong."""
    for tensor in tensors:
        if tensor.dtype != torch.bfloat16 or not tensor.is_contiguous() or tensor.device.type != "cuda":
            layout = f"{tensor.dtype} with strides {tensor.stride()} on {tensor.device}"
            raise ValueError(f"the kernel reads contiguous bfloat16 on cuda, and was given {layout}")
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError("this module has no backward: call it under torch.no_grad()")


class ModelNew(nn.Module):
    def __init__(self, columns, eps):
        super().__init__()
        self.eps = eps
        # Constructed like the reference's; whoever uses the module casts it to bfloat16.
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        check(x, self.scale)
        if self.scale.shape != x.shape[-1:]:
            raise ValueError(f"rows have {x.shape[-1]} elements, and scale has {tuple(self.scale.shape)}")
        y = torch.empty_like(x)
        columns = x.shape[-1]
        block = triton.next_power_of_2(columns)
        rms_norm[(x.numel() // columns,)](x, self.scale, y, columns, self.eps, BLOCK=block, num_warps=8)
        return y
