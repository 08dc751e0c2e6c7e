"""How a signal differs from the attempt before, and numbers in words."""

from __future__ import annotations

from dataclasses import replace

from kforge.types import Digest, Signal

LIMIT = 8
"""Signals in a digest, at most."""
GONE = "gone"

_SOURCES = {
    **dict.fromkeys(("bound", "roofline_share", "headroom"), "roofline"),
    "instructions_per_cycle": "perf",
    **dict.fromkeys(("unvectorised_loops", "vectorised_loops"), "compiler_remarks"),
}
"""Which tool must have spoken for the lack of a signal to mean something; the others come from torch_profiler."""

_SHARES = ("roofline_share", "custom_share", "library_share", "top_operator", "call_overhead_share")


def compared(signal: Signal, previous: Digest | None) -> Signal:
    if previous is None:
        return signal
    before = next((item for item in previous.signals if item.name == signal.name and item.change != GONE), None)
    if before is None:
        # A full digest may have left it out.
        return replace(signal, change="new" if len(previous.signals) < LIMIT else "")
    if signal.value is None or before.value is None:
        was, now = _first_word(before.words), _first_word(signal.words)
        return replace(signal, change="unchanged" if was == now else f"was {was}, now {now}")
    if _alike(before.value, signal.value, signal.name):
        return replace(signal, change="unchanged")
    return replace(signal, change=f"was {_shown(before.value, signal.name)}, now {_shown(signal.value, signal.name)}")


def gone(previous: Digest | None, known: set[str], tools: set[str]) -> list[Signal]:
    """Signals of the attempt before that no longer matter, where the tool that would show them ran."""
    found = []
    for before in previous.signals if previous is not None else ():
        ran = _SOURCES.get(before.name, "torch_profiler") in tools
        if before.name in known or before.change == GONE or not ran:
            continue
        was = f" (was {_shown(before.value, before.name)})" if before.value is not None else ""
        found.append(Signal(before.name, f"{before.name.replace('_', ' ')}: no longer matters{was}", change=GONE))
    return found


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
    return f"{value:.1f}x" if name in ("headroom", "bytes_ratio") else f"{value:.0f}"


def _first_word(words: str) -> str:
    return words.split(" ", 1)[0]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def size(count: float) -> str:
    for unit, bytes_each in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_each:
            return f"{count / bytes_each:.3g} {unit}"
    return f"{count:.0f} bytes"


def time(nanoseconds: float) -> str:
    for unit, each in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= each:
            return f"{nanoseconds / each:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
