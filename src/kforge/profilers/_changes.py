"""How a signal differs from the attempt before."""

from __future__ import annotations

import re
from dataclasses import replace

from kforge.profilers._format import percent, size, time
from kforge.types import Digest, Signal

GONE = "gone"

_SOURCES = {
    **dict.fromkeys(("bound", "roofline_share", "headroom"), "roofline"),
    "instructions_per_cycle": "perf",
    **dict.fromkeys(("unvectorised_loops", "vectorised_loops"), "compiler_remarks"),
    **dict.fromkeys(("uncoalesced", "bank_conflicts", "spilling", "atomics", "occupancy", "parallelism"), "ncu"),
    **dict.fromkeys(("traffic", "tensor_cores", "lanes"), "ncu"),
    **dict.fromkeys(("launch_share", "library_kernels", "copies"), "torch_trace"),
    **dict.fromkeys(("load_width", "spill_code", "double_code"), "sass"),
}
"""Which tool must have spoken for the lack of a signal to mean something; the others come from torch_profiler."""
_SHARES = (
    *("roofline_share", "custom_share", "library_share", "top_operator", "call_overhead_share", "units", "stalls"),
    *("occupancy", "occupancy_reached", "parallelism", "unit", "latency", "bank_conflicts", "spilling", "atomics"),
    *("tensor_cores", "launch_share", "library_kernels", "copies"),
)
_TIMES = ("headroom", "bytes_ratio", "traffic", "traffic_ratio")
_TIMED = {"roofline_share": 1, "headroom": -1}
"""Signals that rest on a time: 1 where faster is more, -1 where it is less."""
_AGREES = 1.25
"""How far a timed signal may move from what the speedup says: beyond that, the machine moved and not the program."""
_GONE_WORDS = {
    "unvectorised_loops": "no loop runs one element at a time any more (there were {was})",
    "library_share": "torch's own operators take next to no time now (they took {was})",
    "call_overhead_share": "Python, dispatch and allocation take next to no time now (they took {was})",
    "bytes_ratio": "no memory traffic beyond what is needed is left between operators (it was {was} the least)",
    "headroom": "the least possible time is all but reached ({was} was missing)",
    "allocated_bytes": "a call allocates no more than its result now (it was {was})",
    "uncoalesced": "global accesses are coalesced now (a warp's touched {was} sectors)",
    "bank_conflicts": "shared memory is accessed without bank conflicts now (they were {was} of the accesses)",
    "spilling": "nothing of note is spilled any more (it was {was} of the memory sectors)",
    "atomics": "atomics do not queue any more (they were {was} of the global accesses)",
    "traffic": "DRAM carries little more than the problem needs now (it was {was} the least)",
    "launch_share": "the device hardly idles within a call now (it idled {was})",
    "library_kernels": "no library kernel takes time any more (they took {was})",
    "copies": "no time goes into copies any more ({was} did)",
    "spill_code": "no instruction moves spilled registers any more (there were {was})",
    "load_width": "global loads are 128 bits wide now (the widest were {was})",
    "double_code": "nothing is done in double precision any more ({was} instructions were)",
}
"""Signals whose end is news, in words; the others go silently."""
_QUOTED = re.compile(r"`([^`]*)`")


def compared(signal: Signal, previous: Digest | None) -> Signal:
    """The signal with its change. One that was not listed before may have been left out: that is not called new."""
    before = _listed(previous, signal.name)
    if before is None or previous is None:
        return signal
    if signal.value is None or before.value is None:
        was, now = _first_word(before.words), _first_word(signal.words)
        return replace(signal, change="unchanged" if was == now else f"was {was}, now {now}")
    if signal.name == "unvectorised_loops" and before.value == signal.value:
        return replace(signal, change="" if _loops(before) == _loops(signal) else "other loops than before")
    if _alike(before.value, signal.value, signal.name):
        return signal
    return replace(signal, change=f"was {_shown(before.value, signal.name)}, now {_shown(signal.value, signal.name)}")


def believable(signal: Signal, previous: Digest | None, speedup: float | None) -> Signal:
    """The signal without its change where that contradicts the speedup: times of two moments do not compare."""
    before, reference = _listed(previous, signal.name), _listed(previous, "speedup")
    sign = _TIMED.get(signal.name)
    if sign is None or before is None or not before.value or not signal.value:
        return signal
    if reference is None or not reference.value or not speedup:
        return signal
    moved = (signal.value / before.value) ** sign
    gained = speedup / reference.value
    same_way = (moved - 1) * (gained - 1) >= 0
    return signal if same_way and 1 / _AGREES <= moved / gained <= _AGREES else replace(signal, change="")


def gone(previous: Digest | None, known: set[str], tools: set[str]) -> list[Signal]:
    """Signals of the attempt before that no longer matter, where that is news and the tool that would show them ran."""
    found = []
    for before in previous.signals if previous is not None else ():
        ran = _SOURCES.get(before.name, "torch_profiler") in tools
        words = _GONE_WORDS.get(before.name)
        if words is None or before.value is None or before.name in known or before.change == GONE or not ran:
            continue
        found.append(Signal(before.name, words.format(was=_shown(before.value, before.name)), change=GONE))
    return found


def _listed(previous: Digest | None, name: str) -> Signal | None:
    signals = previous.signals if previous is not None else ()
    return next((item for item in signals if item.name == name and item.change != GONE), None)


def _loops(signal: Signal) -> list[str]:
    """The loops it names, by their text: lines move from one program to the next."""
    return _QUOTED.findall(signal.words)


def _alike(before: float, now: float, name: str) -> bool:
    if name in _SHARES:
        return abs(before - now) < 0.015
    return abs(before - now) <= 0.05 * max(abs(before), abs(now))


def _shown(value: float, name: str) -> str:
    if name in _SHARES:
        return percent(value)
    if name == "allocated_bytes":
        return size(value)
    if name == "instructions_per_cycle":
        return f"{value:.2g}"
    if name == "speedup":
        return f"{value:.2f}x"
    if name == "device_time":
        return time(value)
    return f"{value:.1f}x" if name in _TIMES else f"{value:.0f}"


def _first_word(words: str) -> str:
    return words.split(" ", 1)[0]
