"""A module and its inputs in another floating dtype: what is an integer, a truth value or complex stays as it is."""

from __future__ import annotations

import torch


def cast_tensor(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in that dtype, if it is a floating one."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def cast_module(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """The module itself, its floating parameters and buffers in that dtype."""
    module._apply(lambda tensor: cast_tensor(tensor, dtype))  # type: ignore[no-untyped-call]
    return module
