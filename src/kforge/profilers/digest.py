"""A profile cut down to the few signals that matter, and how they changed since the attempt before.

`RULES` is a table: a signal's name and the function that finds it. A rule returns nothing where its fact is missing,
trivial or beside the point. What is left is ordered by weight and cut to `LIMIT`. Nothing here looks at the machine:
the same profiles give the same digest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from kforge.types import Digest, Image, Profile, Signal, Verdict

LIMIT = 8
"""Signals in a digest, at most."""
NOT_VECTORISED = "not vectorised: "
"""How a line about a loop that runs one element at a time begins, in the compiler's profile."""
BOUND, SHARE = "bound/", "share/"
"""Metrics whose name carries a word: `bound/memory` is 1 where memory is the bound, `share/aten::mm` is its share."""

_GONE = "gone"
_NAMED_LOOPS = 3
_LONGEST = 400


@dataclass(frozen=True)
class Facts:
    """What the rules read: every tool's numbers, checked."""

    profiles: dict[str, Profile]
    verdict: Verdict

    def number(self, tool: str, name: str, highest: float = math.inf) -> float | None:
        """A metric that makes sense: finite, not negative, at most `highest`."""
        profile = self.profiles.get(tool)
        value = profile.metrics.get(name) if profile is not None else None
        if value is None or not math.isfinite(value) or value < 0:
            return None
        return min(float(value), highest)

    def word(self, tool: str, prefix: str) -> tuple[str, float] | None:
        """The largest of the metrics that begin with a prefix: the rest of its name, and its value."""
        profile = self.profiles.get(tool)
        found = [
            (name.removeprefix(prefix), min(float(value), 1.0))
            for name, value in (profile.metrics.items() if profile is not None else ())
            if name.startswith(prefix) and math.isfinite(value) and value > 0
        ]
        return max(found, key=lambda item: (item[1], item[0]), default=None)


Found = tuple[float, Signal] | None
"""A signal with its weight, or nothing."""


def digest(
    profiles: tuple[Profile, ...],
    verdict: Verdict,
    previous: Digest | None = None,
    without: tuple[str, ...] = (),
) -> Digest:
    """The signals that matter, most important first; `without` switches rules off by name."""
    facts = Facts({profile.tool: profile for profile in profiles if not profile.absent}, verdict)
    found: dict[str, tuple[float, Signal]] = {}
    for name, rule in RULES.items():
        hit = rule(facts) if name not in without else None
        if hit is not None:
            found[name] = hit
    weighed = [(weight, _compared(signal, previous)) for weight, signal in found.values()]
    weighed += [(0.0, signal) for signal in _gone(facts, previous, set(found) | set(without))]
    ordered = sorted(weighed, key=lambda item: -item[0])
    return Digest(tuple(_short(signal) for _, signal in ordered[:LIMIT]))


def images(profiles: tuple[Profile, ...]) -> tuple[Image, ...]:
    """Every picture the profilers took, in their order."""
    return tuple(image for profile in profiles if not profile.absent for image in profile.images)


# -- against the machine -----------------------------------------------------------------------------------------------


def _bound(facts: Facts) -> Found:
    word = facts.word("roofline", BOUND)
    if word is None:
        return None
    reasons = {
        "memory": "moving the data, not arithmetic, sets the least time",
        "compute": "arithmetic, not moving the data, sets the least time",
        "overhead": "the fixed cost of a call weighs more than the work itself",
    }
    words = f"{word[0]} bound: {reasons.get(word[0], 'the ceiling that limits it')}"
    return 3.0, Signal("bound", words)


def _roofline_share(facts: Facts) -> Found:
    share = facts.number("roofline", "roofline_share", 1.0)
    if share is None:
        return None
    words = f"{_percent(share)} of this machine's ceiling is reached"
    rates = (("achieved_gbs", "ceiling_gbs", "GB/s"), ("achieved_gflops", "ceiling_gflops", "GFLOP/s"))
    said = []
    for name, limit, unit in rates:
        achieved, ceiling = facts.number("roofline", name), facts.number("roofline", limit)
        if achieved and ceiling and achieved >= 0.005 * ceiling:
            said.append(f"{achieved:.3g} of {ceiling:.3g} {unit}")
    return 2.9, Signal("roofline_share", words + (f" ({', '.join(said)})" if said else ""), share)


def _headroom(facts: Facts) -> Found:
    times = facts.number("roofline", "headroom")
    if times is None or times < 1.1:
        return None
    floor = facts.number("roofline", "floor_ns")
    least = f": the least time would be {_time(floor)}" if floor else ""
    return min(2.8, 0.8 + times / 4), Signal("headroom", f"up to {times:.1f}x faster is possible here{least}", times)


def _bytes_ratio(facts: Facts) -> Found:
    """How much more memory is moved than must be: each tensor between operators is written once and read once."""
    least, outputs = facts.number("roofline", "bytes_min"), facts.number("roofline", "output_bytes")
    allocated = facts.number("torch_profiler", "allocated_bytes")
    if not least or outputs is None or allocated is None:
        return None
    ratio = 1.0 + 2.0 * max(0.0, allocated - outputs) / least
    if ratio < 1.1:
        return None
    words = f"tensors between operators bring the memory traffic to at least {ratio:.1f} times what is needed"
    return min(1.5, ratio / 4), Signal("bytes_ratio", words, ratio)


# -- where the time goes -----------------------------------------------------------------------------------------------


def _custom_share(facts: Facts) -> Found:
    share = facts.number("torch_profiler", "custom_share", 1.0)
    share = facts.verdict.custom_share if share is None else share
    if share is None or not 0.02 <= share <= 0.98:
        return None
    return 0.4, Signal("custom_share", f"{_percent(share)} of the time is in the program's own native code", share)


def _library_share(facts: Facts) -> Found:
    share = facts.number("torch_profiler", "library_share", 1.0)
    if share is None or share < 0.02:
        return None
    return 0.5 + share, Signal("library_share", f"{_percent(share)} of the time is in torch's own operators", share)


def _top_operator(facts: Facts) -> Found:
    top = facts.word("torch_profiler", SHARE)
    if top is None or top[1] < 0.05:
        return None
    words = f"{top[0]} is the costliest operator: {_percent(top[1])} of the time"
    return 0.4 + top[1], Signal("top_operator", words, top[1])


def _call_overhead_share(facts: Facts) -> Found:
    share = facts.number("torch_profiler", "overhead_share", 1.0)
    if share is None or share < 0.05:
        return None
    return 0.3 + 2 * share, Signal(
        "call_overhead_share", f"{_percent(share)} of the time is Python and dispatch, outside any kernel", share
    )


def _operator_calls(facts: Facts) -> Found:
    calls = facts.number("torch_profiler", "operator_calls")
    if calls is None or calls <= 3:
        return None
    return 0.1, Signal("operator_calls", f"{calls:.0f} torch operators are called each time", calls)


def _allocated_bytes(facts: Facts) -> Found:
    allocated = facts.number("torch_profiler", "allocated_bytes")
    outputs = facts.number("roofline", "output_bytes") or 0.0
    if allocated is None or allocated <= 1.05 * outputs + 4096:
        return None
    beyond = f", {_size(allocated - outputs)} more than its result" if outputs else ""
    return 0.2, Signal("allocated_bytes", f"each call allocates {_size(allocated)}{beyond}", allocated)


# -- what the compiler said --------------------------------------------------------------------------------------------


def _unvectorised_loops(facts: Facts) -> Found:
    count = facts.number("compiler_remarks", "unvectorised_loops")
    if not count:
        return None
    lines = facts.profiles["compiler_remarks"].text.splitlines()
    named = [line.removeprefix(NOT_VECTORISED).strip() for line in lines if line.startswith(NOT_VECTORISED)]
    shown = "; ".join(line[:110] for line in named[:_NAMED_LOOPS])
    what = "loop runs" if count == 1 else "loops run"
    words = f"{count:.0f} {what} one element at a time" + (f": {shown}" if shown else "")
    return 1.4, Signal("unvectorised_loops", words, count)


def _vectorised_loops(facts: Facts) -> Found:
    count = facts.number("compiler_remarks", "vectorised_loops")
    if not count:
        return None
    width = facts.number("compiler_remarks", "vector_bytes")
    wide = f", the widest with {width:.0f}-byte vectors" if width else ""
    what = "loop was" if count == 1 else "loops were"
    return 0.3, Signal("vectorised_loops", f"{count:.0f} {what} vectorised{wide}", count)


RULES: dict[str, Callable[[Facts], Found]] = {
    "bound": _bound,
    "roofline_share": _roofline_share,
    "headroom": _headroom,
    "unvectorised_loops": _unvectorised_loops,
    "call_overhead_share": _call_overhead_share,
    "library_share": _library_share,
    "top_operator": _top_operator,
    "bytes_ratio": _bytes_ratio,
    "custom_share": _custom_share,
    "vectorised_loops": _vectorised_loops,
    "allocated_bytes": _allocated_bytes,
    "operator_calls": _operator_calls,
}
"""Signal name -> the rule that finds it."""

_SOURCES = {
    **dict.fromkeys(("bound", "roofline_share", "headroom"), "roofline"),
    **dict.fromkeys(("unvectorised_loops", "vectorised_loops"), "compiler_remarks"),
}
"""Which tool must have spoken for the lack of a signal to mean something; the others come from torch_profiler."""

_SHARES = ("roofline_share", "custom_share", "library_share", "top_operator", "call_overhead_share")


# -- since the attempt before ------------------------------------------------------------------------------------------


def _compared(signal: Signal, previous: Digest | None) -> Signal:
    if previous is None:
        return signal
    before = next((item for item in previous.signals if item.name == signal.name and item.change != _GONE), None)
    if before is None:
        # A full digest may have left it out.
        return replace(signal, change="new" if len(previous.signals) < LIMIT else "")
    if signal.value is None or before.value is None:
        was, now = _first_word(before.words), _first_word(signal.words)
        return replace(signal, change="unchanged" if was == now else f"was {was}, now {now}")
    if _alike(before.value, signal.value, signal.name):
        return replace(signal, change="unchanged")
    return replace(signal, change=f"was {_shown(before.value, signal.name)}, now {_shown(signal.value, signal.name)}")


def _gone(facts: Facts, previous: Digest | None, known: set[str]) -> list[Signal]:
    """Signals of the attempt before that no longer matter, where the tool that would show them ran."""
    found = []
    for before in previous.signals if previous is not None else ():
        ran = _SOURCES.get(before.name, "torch_profiler") in facts.profiles
        if before.name in known or before.name not in RULES or before.change == _GONE or not ran:
            continue
        was = f" (was {_shown(before.value, before.name)})" if before.value is not None else ""
        found.append(Signal(before.name, f"{before.name.replace('_', ' ')}: no longer matters{was}", change=_GONE))
    return found


def _alike(before: float, now: float, name: str) -> bool:
    if name in _SHARES:
        return abs(before - now) < 0.015
    return abs(before - now) <= 0.05 * max(abs(before), abs(now))


def _shown(value: float, name: str) -> str:
    if name in _SHARES:
        return _percent(value)
    if name == "allocated_bytes":
        return _size(value)
    return f"{value:.1f}x" if name in ("headroom", "bytes_ratio") else f"{value:.0f}"


def _first_word(words: str) -> str:
    return words.split(" ", 1)[0]


def _short(signal: Signal) -> Signal:
    return signal if len(signal.words) <= _LONGEST else replace(signal, words=signal.words[: _LONGEST - 1] + "…")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _size(count: float) -> str:
    for unit, bytes_each in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_each:
            return f"{count / bytes_each:.3g} {unit}"
    return f"{count:.0f} bytes"


def _time(nanoseconds: float) -> str:
    for unit, each in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= each:
            return f"{nanoseconds / each:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
