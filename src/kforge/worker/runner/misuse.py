"""A module's tensors as ordinary use leaves them: in another dtype after `.to(dtype)`, in other strides after a slice.

Does a program then raise, give the right result, or a wrong one without a word?
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from kforge.worker.held_tensors import module_tensors

_ROOM = 4
"""Memory behind a changed tensor, in elements for each of its own: what reads by the old layout stays inside."""


@contextlib.contextmanager
def change_tensors(module: torch.nn.Module, how: str) -> Iterator[list[torch.Tensor]]:
    """Put the module's floating tensors in another dtype or stride, their values kept; yields what was changed."""
    tensors = {id(tensor): tensor for _, tensor in module_tensors(module) if tensor.is_floating_point()}
    before = [(tensor, tensor.data) for tensor in tensors.values() if tensor.numel()]
    for tensor, old in before:
        tensor.data = _another_dtype(old) if how == "dtype" else _another_stride(old)
    try:
        yield [tensor for tensor, _ in before]
    finally:
        for tensor, old in before:
            tensor.data = old


def _another_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in a wider format, so that they are the same numbers; float32 for what is widest already."""
    wider = {torch.float32: torch.float64, torch.float64: torch.float32}.get(tensor.dtype, torch.float32)
    room = torch.zeros(_ROOM * tensor.numel(), dtype=wider, device=tensor.device)
    return room[: tensor.numel()].view(tensor.shape).copy_(tensor)


def _another_stride(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, their axes in the opposite order in memory; with one axis, in every second place."""
    if sum(length > 1 for length in tensor.shape) > 1:
        axes = tuple(reversed(range(tensor.dim())))
        return tensor.permute(axes).contiguous().permute(axes)
    room = torch.zeros(_ROOM * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    return room[: 2 * tensor.numel() : 2].view(tensor.shape).copy_(tensor)
