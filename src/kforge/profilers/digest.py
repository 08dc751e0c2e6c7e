"""A profile cut down to the few signals that matter, and how they changed since the attempt before.

`RULES` is a table: a signal's name and the function that finds it. A rule returns nothing where its fact is missing,
trivial or beside the point. What is left is ordered by weight and cut to `LIMIT`. Nothing here looks at the machine:
the same profiles give the same digest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from kforge.profilers._changes import LIMIT, compared, gone, percent, size, time
from kforge.types import Digest, Image, Profile, Signal, Verdict

NOT_VECTORISED = "not vectorised: "
"""How a line about a loop that runs one element at a time begins, in the compiler's profile."""
BOUND, SHARE = "bound/", "share/"
"""Metrics whose name carries a word: `bound/memory` is 1 where memory is the bound, `share/aten::mm` is its share."""

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
    weighed = [(weight, compared(signal, previous)) for weight, signal in found.values()]
    weighed += [(0.0, signal) for signal in gone(previous, set(found) | set(without), set(facts.profiles))]
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
    words = f"{percent(share)} of this machine's ceiling is reached"
    bound = facts.word("roofline", BOUND)
    which, unit = ("gflops", "GFLOP/s") if bound is not None and bound[0] == "compute" else ("gbs", "GB/s")
    achieved, ceiling = facts.number("roofline", f"achieved_{which}"), facts.number("roofline", f"ceiling_{which}")
    rate = f" ({achieved:.3g} of {ceiling:.3g} {unit})" if achieved and ceiling else ""
    return 2.9, Signal("roofline_share", words + rate, share)


def _headroom(facts: Facts) -> Found:
    times = facts.number("roofline", "headroom")
    if times is None or times < 1.1:
        return None
    floor = facts.number("roofline", "floor_ns")
    least = f": the least time would be {time(floor)}" if floor else ""
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
    return 0.4, Signal("custom_share", f"{percent(share)} of the time is in the program's own native code", share)


def _library_share(facts: Facts) -> Found:
    share = facts.number("torch_profiler", "library_share", 1.0)
    if share is None or share < 0.02:
        return None
    return 0.5 + share, Signal("library_share", f"{percent(share)} of the time is in torch's own operators", share)


def _top_operator(facts: Facts) -> Found:
    top = facts.word("torch_profiler", SHARE)
    if top is None or top[1] < 0.05:
        return None
    words = f"{top[0]} is the costliest operator: {percent(top[1])} of the time"
    return 0.4 + top[1], Signal("top_operator", words, top[1])


def _call_overhead_share(facts: Facts) -> Found:
    share = facts.number("torch_profiler", "overhead_share", 1.0)
    if share is None or share < 0.05:
        return None
    return 0.3 + 2 * share, Signal(
        "call_overhead_share",
        f"{percent(share)} of the time is Python, dispatch and allocation, outside any kernel",
        share,
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
    beyond = f", {size(allocated - outputs)} more than its result" if outputs else ""
    return 0.2, Signal("allocated_bytes", f"each call allocates {size(allocated)}{beyond}", allocated)


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


def _instructions_per_cycle(facts: Facts) -> Found:
    rate = facts.number("perf", "instructions_per_cycle")
    if rate is None or rate >= 1:
        return None
    words = f"{rate:.2g} instructions a cycle: the processor mostly waits"
    return 0.6, Signal("instructions_per_cycle", words, rate)


RULES: dict[str, Callable[[Facts], Found]] = {
    "bound": _bound,
    "roofline_share": _roofline_share,
    "headroom": _headroom,
    "unvectorised_loops": _unvectorised_loops,
    "call_overhead_share": _call_overhead_share,
    "library_share": _library_share,
    "top_operator": _top_operator,
    "bytes_ratio": _bytes_ratio,
    "instructions_per_cycle": _instructions_per_cycle,
    "custom_share": _custom_share,
    "vectorised_loops": _vectorised_loops,
    "allocated_bytes": _allocated_bytes,
    "operator_calls": _operator_calls,
}
"""Signal name -> the rule that finds it."""


def _short(signal: Signal) -> Signal:
    return signal if len(signal.words) <= _LONGEST else replace(signal, words=signal.words[: _LONGEST - 1] + "…")
