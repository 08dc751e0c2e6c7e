"""Dispatch modes for checked calls: one poisons fresh memory, one records which torch operators ran.

Both sit at the dispatcher, so operators called from C++ extensions are seen as well.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_clock = time.perf_counter_ns
_ALLOCATIONS = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")
_CREATIONS = ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
              "arange", "scalar_tensor", "fill_", "zero_", "fill")
_MOVES = ("clone", "copy_", "_to_copy", "detach", "lift_fresh", "lift_fresh_copy", "alias", "_local_scalar_dense",
          "set_", "resize_", "item", "cat", "stack", "contiguous", "copy")
_TINY = 16


def operator_kind(name: str, is_view: bool) -> str:
    """view, allocation, creation, move or compute."""
    if is_view:
        return "view"
    if name in _ALLOCATIONS:
        return "allocation"
    if name in _CREATIONS:
        return "creation"
    return "move" if name in _MOVES else "compute"


class Poison(TorchDispatchMode):
    """Memory that torch hands out uninitialised holds NaN (or the largest integer) instead of stale results."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _ALLOCATIONS and isinstance(output, torch.Tensor):
            poison(output)
        return output


def poison(tensor: torch.Tensor) -> None:
    """Fill with what no honest kernel leaves behind."""
    if tensor.device.type == "meta" or tensor.numel() == 0:
        return
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    elif not tensor.is_quantized:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


class Observe(TorchDispatchMode):
    """Records operators with their time, and whether memory changed while no operator was running.

    A change between operators is the work of the candidate's own code, and it matters: an operator or the result
    reads it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[tuple[str, str, int, int]] = []
        """(name, kind, elements of the result, nanoseconds)."""
        self.custom_effect = False
        self._known: dict[int, int] = {}

    def learn(self, tensors: list[torch.Tensor]) -> None:
        """These exist before the call."""
        for tensor in tensors:
            self._remember(tensor)

    def conclude(self, tensors: list[torch.Tensor]) -> None:
        """These are the result."""
        for tensor in tensors:
            self._notice(tensor, small_counts=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = _tensors(args) + _tensors(kwargs)
        name = func.overloadpacket.__name__
        kind = operator_kind(name, getattr(func, "is_view", False))
        own = func.namespace not in ("aten", "prims", "prim", "mkldnn", "quantized", "inductor")
        if kind not in ("view", "allocation") and not own:
            for tensor in inputs:
                self._notice(tensor)
        began = _clock()
        output = func(*args, **kwargs)
        spent = _clock() - began
        results = _tensors(output)
        if kind == "allocation":
            # Recycled memory may already hold the result of the call before.
            for tensor in results:
                poison(tensor)
        if not own:
            self.operators.append((f"{func.namespace}.{name}", kind, sum(t.numel() for t in results), spent))
            for tensor in [*results, *inputs]:
                self._remember(tensor)
        return output

    def _notice(self, tensor: torch.Tensor, small_counts: bool = False) -> None:
        if self.custom_effect or not _has_bytes(tensor):
            return
        before = self._known.get(tensor.untyped_storage().data_ptr())
        if before is None:
            self.custom_effect = small_counts or tensor.numel() > _TINY
        elif before != _checksum(tensor):
            self.custom_effect = True

    def _remember(self, tensor: torch.Tensor) -> None:
        if _has_bytes(tensor):
            self._known[tensor.untyped_storage().data_ptr()] = _checksum(tensor)


def _has_bytes(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.numel() > 0


def _checksum(tensor: torch.Tensor) -> int:
    """A number that changes when the tensor's storage does, wherever in it."""
    data = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    words = data[: data.numel() // 8 * 8].view(torch.int64)
    total = int(words.sum()) if words.numel() else 0
    odd = int(words[1::2].sum()) if words.numel() > 1 else 0
    tail = bytes(data[data.numel() // 8 * 8 :].tolist())
    return hash((total, odd, tail))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    return []
