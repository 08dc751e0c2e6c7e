"""What holds a GPU program back: each cause with an estimate of the share of the call it stands for.

A cause of waste outweighs a unit that works at its peak: a kernel whose every load fetches eight times what it uses is
not bound by the cache that serves it. The estimates order the causes; they promise no speedup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kforge.profilers import _gpu_facts
from kforge.profilers._facts import Facts
from kforge.profilers._format import percent, time
from kforge.profilers._gpu_facts import KernelFacts
from kforge.profilers._kernel_causes import CAUSES, Hit, causes_of

LEAST = 0.1
"""A cause that stands for less of the call is not worth a word."""
_TENSOR_IDLE = 0.02
_RIDGE = 16.0
"""Operations a byte from which the ordinary pipes cannot keep up with memory."""


@dataclass(frozen=True)
class Cause:
    """One thing that holds a call back."""

    name: str
    """The rule that finds it."""
    weight: float
    """The estimated share of the call, 0 to 1."""
    text: str
    """A sentence that begins with a word for the cause: that word is compared from attempt to attempt."""
    value: float | None = None
    """The number that the text rests on, for comparison."""


def causes(facts: Facts) -> list[Cause]:
    """Every cause worth a word, the heaviest first; one of a kind, named for the kernel where it weighs most."""
    candidates = [cause(facts) for name, cause in _OF_CALLS.items() if name not in facts.without]
    hits: dict[str, list[tuple[KernelFacts, Hit]]] = {}
    for kernel in _gpu_facts.kernels(facts):
        for name, hit in causes_of(kernel, facts.without).items():
            hits.setdefault(name, []).append((kernel, hit))
    candidates += [_over_kernels(name, where) for name, where in hits.items()]
    worth = [cause for cause in candidates if cause is not None and cause.weight >= LEAST]
    return sorted(worth, key=lambda cause: (-round(cause.weight, 6), cause.name))


def _over_kernels(name: str, hits: list[tuple[KernelFacts, Hit]]) -> Cause:
    weight = sum(kernel.share * hit[0] for kernel, hit in hits)
    worst, (_, text, value) = max(hits, key=lambda pair: (pair[0].share * pair[1][0], -pair[0].rank))
    where = f" (`{worst.name}` is {percent(worst.share)} of the device's time)" if worst.share < 0.95 else ""
    return Cause(name, min(1.0, weight), text + where, value)


# -- of the call -------------------------------------------------------------------------------------------------------


def _launches(facts: Facts) -> Cause | None:
    """Kernels so short, or so far apart, that starting them is most of the time."""
    cost = _gpu_facts.launch_ns(facts)
    total, count = _gpu_facts.traced_number(facts, "busy_ns"), _gpu_facts.traced_number(facts, "launches")
    if not total or not count:
        total, count = facts.number("ncu", "time_ns"), facts.number("ncu", "launches")
    if not total or not count:
        return None
    idle = min(1.0, _gpu_facts.traced_number(facts, "idle_share") or 0.0)
    each = total / count
    weight = max(min(1.0, cost / each), idle)
    between = f", and the device idles {percent(idle)} of the call" if idle >= 0.05 else ""
    what = f"its one kernel takes {time(each)}" if count <= 1 else f"{count:.0f} kernels of {time(each)} each"
    change = "do more in it" if count <= 1 else "do the work in one kernel, or capture the call in a CUDA graph"
    text = f"launches limit the call: {what}, where a launch alone costs about {time(cost)}{between}; {change}"
    return Cause("launches", weight, text, count)


def _traffic(facts: Facts) -> Cause | None:
    ratio = traffic_ratio(facts)
    if ratio is None:
        return None
    busy = sum(kernel.share * kernel.part("dram_share") for kernel in _gpu_facts.kernels(facts))
    text = (
        f"traffic limits the call: {ratio:.1f} times the bytes the problem needs go through DRAM; fuse kernels, and "
        "read and write every tensor once"
    )
    return Cause("traffic", (1 - 1 / ratio) * min(1.0, busy / 0.9), text, ratio)


def traffic_ratio(facts: Facts) -> float | None:
    """Bytes through DRAM over what the problem needs; None where unknown or next to the least."""
    moved, least = facts.number("ncu", "dram_bytes"), facts.number("roofline", "bytes_min")
    if not moved or not least or facts.number("ncu", _gpu_facts.CUT):
        return None
    return moved / least if moved > 1.2 * least else None


def _tensor_cores(facts: Facts) -> Cause | None:
    """A matrix product in a type that tensor cores take, done without them."""
    kernels = _gpu_facts.kernels(facts)
    if not kernels or any(kernel.part("tensor_share") >= _TENSOR_IDLE for kernel in kernels):
        return None
    if not any(kernel.has("tensor_share") for kernel in kernels):
        return None
    matrix, intensity = facts.number("roofline", "matrix_share", 1.0), facts.number("roofline", "intensity")
    if matrix is not None and intensity is not None:
        allowed = facts.number("roofline", "tensor_allowed")
        if not allowed or matrix < 0.5 or intensity < _RIDGE:
            return None
        top, weight = kernels[0], 0.95 * matrix
    else:
        products = [kernel for kernel in kernels if _looks_like_a_product(kernel)]
        if not products:
            return None
        top, weight = products[0], 0.85 * products[0].share
    kind = facts.word("roofline", "arithmetic/")
    of = f" of {kind[0]}" if kind is not None else ""
    text = (
        f"tensor-cores stay idle in `{top.name}`: the matrix product{of} runs on the ordinary pipes "
        f"(FMA {percent(top.part('fma_share'))}, load/store {percent(top.part('lsu_share'))}); use wgmma or mma.sync "
        "(`tl.dot`, nvcuda::wmma) on tiles in shared memory"
    )
    return Cause("tensor_cores", weight, text, top.part("tensor_share"))


def _looks_like_a_product(kernel: KernelFacts) -> bool:
    """Half-precision values, multiplied and added, each read from shared memory many times over."""
    return (
        kernel.get("half_share") > 0.002 and kernel.part("fma_share") >= 0.05 and kernel.get("shared_loads_each") >= 4
    )


_OF_CALLS: dict[str, Callable[[Facts], Cause | None]] = {
    "launches": _launches,
    "traffic": _traffic,
    "tensor_cores": _tensor_cores,
}
NAMES: tuple[str, ...] = (*_OF_CALLS, *CAUSES)
"""The rules that find causes."""
