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
_GATHERING = frozenset(("embedding", "index_select", "gather", "index"))


def look(subject: Any, request: dict[str, Any]) -> dict[str, Any]:
    return _measure(request["sizes"]) if request["of"] == "machine" else _count(subject)


# -- the work ------------------------------------------------------------------------------------------------------


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Arithmetic of each operator: exact for matrix products and convolutions, one per element for the rest."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.exact = 0
        self.estimated = 0
        self.read: dict[int, int] = {}
        """Storage -> the most bytes an operator read of it."""

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
            place = tensor.untyped_storage().data_ptr()
            self.read[place] = max(self.read.get(place, 0), min(_bytes(tensor), most))


def _count(subject: Any) -> dict[str, Any]:
    counter = _Counter()
    with counter:
        output = subject.call()
    held = [*subject.module.parameters(), *subject.module.buffers()]
    given = [tensor for arguments in subject.arguments for tensor in _tensors(arguments)]
    places = {tensor.untyped_storage().data_ptr(): tensor.dtype for tensor in [*held, *given]}
    return {
        "exact": counter.exact,
        "estimated": counter.estimated,
        "read_bytes": sum(count for place, count in counter.read.items() if place in places),
        "output_bytes": sum(map(_bytes, _tensors(output))),
        "dtype": str(next((item.dtype for item in [*held, *given] if item.is_floating_point()), "")),
    }


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


# -- the machine ---------------------------------------------------------------------------------------------------


def _measure(sizes: list[int]) -> dict[str, Any]:
    return {
        "bandwidth": [[size, _bandwidth(size)] for size in sizes],
        "flops": _peak_flops(),
        "overhead_ns": _call_overhead(),
        "threads": torch.get_num_threads(),
    }


def _best(call: Any, seconds: float) -> int:
    """The fastest of many, in nanoseconds."""
    call()
    best = 1 << 60
    end = _clock() + int(seconds * 1e9)
    while True:
        began = _clock()
        call()
        now = _clock()
        best = min(best, now - began)
        if now > end:
            return max(best, 1)


def _bandwidth(size: int) -> float:
    """Bytes a second of c = a + s b with all three arrays together of this size; a write counts once."""
    each = max(size // 12, 1024)
    a, b, c = torch.ones(each), torch.ones(each), torch.zeros(each)
    spent = _best(lambda: torch.add(a, b, alpha=0.5, out=c), 0.1)
    return 12 * each * 1e9 / spent


def _peak_flops() -> float:
    """Of a large product of float32 matrices."""
    n = 1024
    a, b, c = torch.rand(n, n), torch.rand(n, n), torch.empty(n, n)
    return 2 * n**3 * 1e9 / _best(lambda: torch.mm(a, b, out=c), 0.3)


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
