"""In a trusted runner: what one call of the reference has to do, and what this machine can do at most."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

_clock = time.perf_counter_ns
_ALLOCATING = frozenset(("empty", "empty_like", "empty_strided", "new_empty"))
_MOVING = frozenset(("clone", "copy_", "_to_copy", "cat", "stack", "_unsafe_view", "_reshape_alias", "resize_", "set_"))
_ROUNDS = 4
_WIDTHS = (512, 1024)
_GATHERING = frozenset(("embedding", "index_select", "gather", "index"))


def look(subject: Any, request: dict[str, Any]) -> dict[str, Any]:
    return _measure(request["sizes"]) if request["of"] == "machine" else _count(subject)


# -- the work ------------------------------------------------------------------------------------------------------


_View = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""Where a tensor begins and ends, its shape and its strides."""


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Arithmetic of each operator: exact for matrix products and convolutions, one per element for the rest."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.exact = 0
        self.estimated = 0
        self.read: dict[_View, int] = {}
        """View -> the most bytes an operator read of it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        packet = func.overloadpacket
        name = packet.__name__
        inputs, outputs = _tensors([args, kwargs]), _tensors(output)
        if name in _ALLOCATING or func.is_view:
            return output
        self._note_reads(name, inputs, outputs)
        if packet in flop_registry:
            self.exact += int(flop_registry[packet](*args, **kwargs, out_val=output))
        elif "scaled_dot_product" in name:
            query, key = args[0], args[1]
            self.exact += 4 * query.numel() * key.shape[-2]
        elif name not in _MOVING:
            self.estimated += max((tensor.numel() for tensor in [*inputs, *outputs]), default=0)
        return output

    def _note_reads(self, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        most = sum(map(_bytes, outputs)) if name in _GATHERING else 1 << 62
        for tensor in inputs:
            if tensor.numel():
                view = (*_span(tensor), tuple(tensor.shape), tuple(tensor.stride()))
                self.read[view] = max(self.read.get(view, 0), min(_bytes(tensor), most))


def _count(subject: Any) -> dict[str, Any]:
    counter = _Counter()
    with counter:
        output = subject.call()
    held = [*subject.module.parameters(), *subject.module.buffers()]
    given = [tensor for arguments in subject.arguments for tensor in _tensors(arguments)]
    return {
        "exact": counter.exact,
        "estimated": counter.estimated,
        "read_bytes": traffic(counter.read, [_span(tensor) for tensor in [*held, *given] if tensor.numel()]),
        "output_bytes": sum(map(_bytes, _tensors(output))),
        "dtype": str(next((item.dtype for item in [*held, *given] if item.is_floating_point()), "")),
    }


def traffic(read: dict[_View, int], given: list[tuple[int, int]]) -> int:
    """Bytes read of the memory given, each once, however many views lie over it.

    Views that overlap are taken together: no more than the memory they cover, no more than they hold all in all.
    """
    merged = _union(given)
    inside = {view: count for view, count in read.items() if any(a < view[1] and view[0] < b for a, b in merged)}
    return sum(
        min(end - start, sum(count for view, count in inside.items() if start <= view[0] < end))
        for start, end in _union([view[:2] for view in inside])
    )


def _union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same memory in stretches that do not overlap."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of its first byte and of the one after its last."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


# -- the machine ---------------------------------------------------------------------------------------------------


def _measure(sizes: list[int]) -> dict[str, Any]:
    """The best of several rounds: a disturbance seldom lasts through all of them."""
    memory = _Memory(max(sizes))
    bandwidth = dict.fromkeys(sizes, 0.0)
    flops = 0.0
    for _ in range(_ROUNDS):
        for size in sizes:
            bandwidth[size] = max(bandwidth[size], memory.bandwidth(size, 0.2 / _ROUNDS / len(sizes)))
        flops = max(flops, *(_peak_flops(width, 0.12 / _ROUNDS) for width in _WIDTHS))
    return {
        "bandwidth": [[size, rate] for size, rate in bandwidth.items()],
        "flops": flops,
        "overhead_ns": _call_overhead(),
    }


def _best(call: Any, seconds: float) -> int:
    """The fastest of at least three, in nanoseconds."""
    call()
    best, count = 1 << 60, 0
    end = _clock() + int(seconds * 1e9)
    while True:
        began = _clock()
        call()
        now = _clock()
        best, count = min(best, now - began), count + 1
        if now > end and count >= 3:
            return max(best, 1)


class _Memory:
    """Three arrays, of which larger and smaller parts are gone through."""

    def __init__(self, size: int) -> None:
        each = max(size // 12, 1024)
        self._arrays = torch.ones(each), torch.ones(each), torch.zeros(each)

    def bandwidth(self, size: int, seconds: float) -> float:
        """Bytes a second of c = a + s b with all three arrays together of this size; a write counts once."""
        each = max(size // 12, 1024)
        a, b, c = (array[:each] for array in self._arrays)
        return 12 * each * 1e9 / _best(lambda: torch.add(a, b, alpha=0.5, out=c), seconds)


def _peak_flops(width: int, seconds: float) -> float:
    """Of a product of float32 matrices; a smaller one is sooner over, and so less often disturbed."""
    a, b, c = torch.rand(width, width), torch.rand(width, width), torch.empty(width, width)
    return 2 * width**3 * 1e9 / _best(lambda: torch.mm(a, b, out=c), seconds)


class _Smallest(torch.nn.Module):
    """What every drop-in that calls C through ctypes has to do at least."""

    def __init__(self) -> None:
        super().__init__()
        self._function = ctypes.CDLL(None).labs
        self._function.argtypes = [ctypes.c_void_p]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        self._function(y.data_ptr())
        return y


def _call_overhead() -> int:
    module, x = _Smallest(), torch.ones(16)
    return _best(lambda: module(x), 0.03)
