"""How checked calls are watched: fresh memory poisoned, the candidate's own effects seen, torch's operators recorded.

The two modes sit at the dispatcher; the record of operators comes from torch's profiler, which sees every thread and
what C++ code calls, whether or not a mode is in the way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.worker.arena import span
from kforge.worker.runner.fenced_memory import FencedMemory

_ALLOCATIONS = frozenset(
    ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted"),
)
_VIEWS = frozenset(
    (
        *("view", "_unsafe_view", "t", "transpose", "as_strided", "expand", "expand_as", "reshape", "permute", "slice"),
        *("select", "unsqueeze", "squeeze", "resolve_conj", "resolve_neg", "detach", "detach_", "alias", "unfold"),
        *("narrow", "split", "split_with_sizes", "chunk", "flatten", "unflatten", "unbind", "view_as", "numpy_T", "mT"),
        *("movedim", "swapaxes", "diagonal", "real", "imag", "view_as_real", "view_as_complex", "lift_fresh"),
        *("result_type", "is_nonzero", "set_", "resize_", "size", "stride"),
    )
)
_CREATIONS = frozenset(
    (
        *("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"),
        *("arange", "scalar_tensor", "fill_", "zero_"),
    )
)
_MOVES = frozenset(
    (
        *("clone", "copy_", "_to_copy", "to", "contiguous", "item", "_local_scalar_dense", "cat", "stack", "copy"),
        "lift_fresh_copy",
    )
)
_TINY = 16
_FENCE, _FENCE_BYTE = 512, 0xA5
_RESIZES = frozenset(("resize_", "resize_as_"))
_MOST_COPIED = 64 << 20
"""Bytes of what an operator gave beyond which it is left where it lies."""
_WHOLE = "the whole call"
_LIBRARY = ("aten", "prims", "prim", "mkldnn", "quantized", "inductor")


def operator_kind(name: str) -> str:
    """view, allocation, creation, move or compute."""
    for kind, names in (("view", _VIEWS), ("allocation", _ALLOCATIONS), ("creation", _CREATIONS), ("move", _MOVES)):
        if name in names:
            return kind
    return "compute"


def record_operators(call: Any) -> tuple[list[tuple[str, str, int, int]], int]:
    """Run `call`; torch's outermost work as (name, kind, elements, nanoseconds), operators inside operators resolved.

    A compute operator is listed by its innermost name; its time counts once, with the outermost. With the nanoseconds
    that the whole call took, by the profiler's clock as theirs.
    """
    from torch._C._profiler import _ExperimentalConfig

    everywhere = _ExperimentalConfig(profile_all_threads=True)
    with (
        torch.autograd.profiler.profile(use_kineto=True, record_shapes=True, experimental_config=everywhere) as profile,
        torch.autograd.profiler.record_function(_WHOLE),
    ):
        call()
    whole = [event.cpu_time_total for event in profile.function_events if event.name == _WHOLE]
    return operators_of(profile), int(1000 * max(whole, default=0))


def operators_of(profile: Any) -> list[tuple[str, str, int, int]]:
    """The operators in a profile, in the form of `record_operators`."""
    operators: list[tuple[str, str, int, int]] = []
    for event in profile.function_events:
        if not event.name.startswith("aten::"):
            continue
        name = event.name.removeprefix("aten::")
        kind = operator_kind(name)
        outermost = not _has_aten_above(event)
        if kind == "compute" and _computes_below(event):
            kind = "outer"
        elements = max((_numel(shape) for shape in event.input_shapes or []), default=0)
        spent = int(event.cpu_time_total * 1000) if outermost else 0
        if kind == "compute" or outermost:
            operators.append((f"aten.{name}", kind, elements, spent))
    return operators


def _has_aten_above(event: Any) -> bool:
    above = event.cpu_parent
    while above is not None:
        if above.name.startswith("aten::"):
            return True
        above = above.cpu_parent
    return False


def _computes_below(event: Any) -> bool:
    return any(
        (child.name.startswith("aten::") and operator_kind(child.name.removeprefix("aten::")) == "compute")
        or _computes_below(child)
        for child in event.cpu_children
    )


def _numel(shape: Any) -> int:
    total = 1
    for length in shape if isinstance(shape, (list, tuple)) else ():
        total *= length if isinstance(length, int) else 1
    return total if shape else 0


class Poison(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Memory that torch hands out uninitialised holds NaN (or the largest integer) instead of stale results.

    On a device that is named, it also lies between two fences, so that who writes before its start or behind its end is
    seen. In the host's memory so does every new tensor that an operator gives.
    """

    def __init__(self, fenced_on: str = "", host: FencedMemory | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = fenced_on
        self._host = host
        self._fences: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        if self._host is not None and name in _RESIZES and self._host.holds(args[0]):
            _leave_fences(args[0])
        output = func(*args, **kwargs)
        if name in _ALLOCATIONS and isinstance(output, torch.Tensor):
            if self._host is not None:
                output = self._host.like(output) if self._host.can_hold(output) else output
            elif output.device.type == self._device:
                output = self._fence_in(output)
            poison(output)
        elif self._host is not None and func.namespace == "aten" and _gives_new(func):
            output = self._copy_in(output, self._host, _tensors(args) + _tensors(kwargs))
        return output

    def _copy_in(self, output: Any, host: FencedMemory, inputs: list[torch.Tensor]) -> Any:
        """What an operator gave, each tensor that lies in memory of its own between fences."""
        if isinstance(output, (list, tuple)):
            return type(output)([self._copy_in(item, host, inputs) for item in output])
        if not isinstance(output, torch.Tensor) or not host.can_hold(output) or output.nbytes > _MOST_COPIED:
            return output
        storage = output.untyped_storage().data_ptr()
        if any(item.layout == torch.strided and item.untyped_storage().data_ptr() == storage for item in inputs):
            return output
        return host.like(output).copy_(output)

    def _fence_in(self, tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.is_quantized:
            return tensor
        if not tensor.numel() or span(tuple(tensor.shape), tensor.stride()) != tensor.numel():
            return tensor
        size = tensor.numel() * tensor.element_size()
        whole = torch.empty((size + 2 * _FENCE,), dtype=torch.uint8, device=tensor.device)
        self._fences += [whole[:_FENCE].fill_(_FENCE_BYTE), whole[_FENCE + size :].fill_(_FENCE_BYTE)]
        inside = whole[_FENCE : _FENCE + size].view(tensor.dtype)
        return inside.as_strided(tensor.shape, tensor.stride(), inside.storage_offset())

    def is_fence_crossed(self) -> bool:
        """Whether something was written to a fence."""
        return any(bool((fence != _FENCE_BYTE).any()) for fence in self._fences)


@functools.cache
def _gives_new(func: Any) -> bool:
    """Whether what an operator returns is no argument of it, and no part of one."""
    return all(result.alias_info is None for result in func._schema.returns)


def _leave_fences(tensor: torch.Tensor) -> None:
    """Move a tensor to memory that can grow."""
    copy = tensor.clone()
    tensor.set_(copy.untyped_storage(), 0, copy.shape, copy.stride())


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


class Effects(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Whether memory changed while no operator was running.

    Such a change is the work of the candidate's own code, and it matters: an operator or the result reads it.
    """

    def __init__(self, device: str = "cpu", synchronize: Callable[[], None] = lambda: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._synchronize = synchronize
        self.seen = False
        self._known: dict[int, int] = {}

    def learn(self, tensors: list[torch.Tensor]) -> None:
        """Note tensors that exist before the call."""
        for tensor in tensors:
            self._remember(tensor)

    def conclude(self, tensors: list[torch.Tensor]) -> None:
        """Look at the tensors of the result."""
        for tensor in tensors:
            self._notice(tensor, small_counts=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = _tensors(args) + _tensors(kwargs)
        kind = operator_kind(func.overloadpacket.__name__)
        if func.namespace not in _LIBRARY:
            # An operator the program registered itself: what it does is the program's own work.
            return func(*args, **kwargs)
        if kind not in ("view", "allocation"):
            for tensor in inputs:
                self._notice(tensor)
        output = func(*args, **kwargs)
        if kind == "view":
            return output
        results = _tensors(output)
        if kind == "allocation":
            # Recycled memory may already hold the result of the call before.
            for tensor in results:
                poison(tensor)
        for tensor in [*results, *inputs]:
            self._remember(tensor)
        return output

    def _notice(self, tensor: torch.Tensor, small_counts: bool = False) -> None:
        if self.seen or not self._has_bytes(tensor):
            return
        self._synchronize()
        before = self._known.get(tensor.untyped_storage().data_ptr())
        if before is None:
            self.seen = small_counts or tensor.numel() > _TINY
        elif before != _checksum(tensor):
            self.seen = True

    def _has_bytes(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._device and tensor.layout == torch.strided and tensor.numel() > 0

    def _remember(self, tensor: torch.Tensor) -> None:
        if self._has_bytes(tensor):
            self._synchronize()
            self._known[tensor.untyped_storage().data_ptr()] = _checksum(tensor)


def _checksum(tensor: torch.Tensor) -> int:
    """A number that changes when the tensor's storage does, wherever in it."""
    data = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
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
