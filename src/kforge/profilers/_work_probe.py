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
    if request["of"] != "machine":
        return _count(subject)
    return _measure_gpu(request["sizes"]) if request.get("device") == "cuda" else _measure(request["sizes"])


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
    inputs = [tensor for arguments in subject.arguments for tensor in _tensors(arguments)]
    return {
        "exact": counter.exact,
        "estimated": counter.estimated,
        "read_bytes": traffic(counter.read, [_span(tensor) for tensor in [*held, *inputs] if tensor.numel()]),
        "output_bytes": sum(map(_bytes, _tensors(output))),
        "dtype": str(next((item.dtype for item in [*held, *inputs] if item.is_floating_point()), "")),
    }


def traffic(read: dict[_View, int], inputs: list[tuple[int, int]]) -> int:
    """Bytes read of the memory that came in, each once, however many views lie over it.

    Views that overlap are taken together: no more than the memory they cover, no more than they hold all in all.
    """
    merged = _union(inputs)
    inside = {view: count for view, count in read.items() if any(a < view[1] and view[0] < b for a, b in merged)}
    return sum(
        min(end - start, sum(count for view, count in inside.items() if start <= view[0] < end))
        for start, end in _union([view[:2] for view in inside])
    )


def _union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The memory of these spans in stretches that do not overlap."""
    stretches: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if stretches and start < stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(end, stretches[-1][1]))
        else:
            stretches.append((start, end))
    return stretches


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the one after its last."""
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
    """Rates of this machine, the best of several rounds: a disturbance seldom lasts through all of them."""
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
    """The fastest of at least three calls, in nanoseconds."""
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
    """Operations a second of a float32 matrix product; a smaller one is sooner over, and so less often disturbed."""
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


# -- a GPU ---------------------------------------------------------------------------------------------------------


_GPU_ROUNDS = 8
_GPU_WIDTHS = (4096, 8192)
_AHEAD_CYCLES = 250_000
"""The device waits about 0.13 ms before what is measured, so that the processor has launched it all by then."""
_LEAST_FLUSH = 64 << 20
_MANY_LAUNCHES = 20
_LEAST_SHARE = 0.3
"""The least share of a copy's time that is taken to be copying, however much of it the smallest kernel takes too."""
_ARITHMETIC = {
    "float32": (torch.float32, "highest"),
    "tf32": (torch.float32, "high"),
    "bfloat16": (torch.bfloat16, "highest"),
    "float16": (torch.float16, "highest"),
    "float64": (torch.float64, "highest"),
}
"""Name -> the matrices' type, and the precision that torch may compute float32 products in."""


def _measure_gpu(sizes: list[int]) -> dict[str, Any]:
    """Rates of a GPU, measured as a candidate is: by events, the caches cold, the processor ahead of the device."""
    watch = _Watch()
    x, y = torch.ones(32, device="cuda"), torch.empty(32, device="cuda")
    overhead = watch.best(lambda: torch.neg(x, out=y), 4 * _GPU_ROUNDS)
    many = watch.best(lambda: _repeat(lambda: torch.neg(x, out=y), _MANY_LAUNCHES), _GPU_ROUNDS)
    rates = {name: _matrix_rate(watch, *kind) for name, kind in _ARITHMETIC.items()}
    return {
        "bandwidth": [[size, rate] for size in sizes if (rate := _copy_rate(watch, size, overhead))],
        "flops": rates["float32"],
        "rates": sorted(rates.items()),
        "overhead_ns": overhead,
        "launch_ns": max(1.0, (many - overhead) / (_MANY_LAUNCHES - 1)),
    }


class _Watch:
    """Times what is launched, with cold caches."""

    def __init__(self) -> None:
        size = max(2 * int(torch.cuda.get_device_properties(0).L2_cache_size), _LEAST_FLUSH)
        self._scratch = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def best(self, call: Any, rounds: int) -> float:
        """The fastest of so many calls, in nanoseconds, after two that do not count."""
        times = []
        for _ in range(rounds + 2):
            torch.cuda._sleep(_AHEAD_CYCLES)  # type: ignore[no-untyped-call]
            self._scratch.zero_()
            self._start.record()
            call()
            self._end.record()
            torch.cuda.synchronize()
            times.append(float(self._start.elapsed_time(self._end)) * 1e6)
        return max(1.0, min(times[2:]))


def _repeat(call: Any, times: int) -> None:
    for _ in range(times):
        call()


def _copy_rate(watch: _Watch, size: int, overhead: float) -> float:
    """Bytes a second of a copy that reads and writes this much together; 0 where there is no room for it."""
    free, _ = torch.cuda.mem_get_info()
    if size > free // 2:
        return 0.0
    count = size // 8
    source, target = (torch.zeros(count, device="cuda") for _ in range(2))
    spent = watch.best(lambda: target.copy_(source), _GPU_ROUNDS)
    return 8 * count * 1e9 / max(spent - overhead, _LEAST_SHARE * spent)


def _matrix_rate(watch: _Watch, dtype: torch.dtype, precision: str) -> float:
    """Operations a second of the better of two products; values are random, since zeros take less power."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        best = 0.0
        for width in _GPU_WIDTHS:
            a, b = (torch.randn(width, width, device="cuda").to(dtype) for _ in range(2))
            c = torch.empty(width, width, device="cuda", dtype=dtype)
            best = max(best, 2 * width**3 * 1e9 / watch.best(lambda: torch.mm(a, b, out=c), 4))  # noqa: B023
        return best
    finally:
        torch.set_float32_matmul_precision(before)
