"""A rule of the digest: how one signal is found, and how its change is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kforge.profilers._facts import Facts, RuleResult
from kforge.profilers._format import percent, size, time

Unit = Literal["share", "times", "speedup", "bytes", "nanoseconds", "number", "count"]

_WRITTEN: dict[Unit, Callable[[float], str]] = {
    "share": percent,
    "times": "{:.1f}x".format,
    "speedup": "{:.2f}x".format,
    "bytes": size,
    "nanoseconds": time,
    "number": "{:.2g}".format,
    "count": "{:.0f}".format,
}


@dataclass(frozen=True)
class SignalRule:
    """How one signal is found in what the profilers saw. Only `name` and `find` are required."""

    name: str
    """The signal's, which no other rule has."""
    find: Callable[[Facts], RuleResult]
    """The signal with its weight, or None where its fact is missing, trivial or beside the point.

    Weights order a digest: 4 is the one thing that limits a call, 3 what sets its least time, 1 worth a look, 0.1 a
    detail.
    """
    unit: Unit = "count"
    """What its value is: how a change is written, and which is too small to tell."""
    gone: str = ""
    """What is said once it is no longer found, `{was}` being its last value; empty where its end is no news."""
    source: str = ""
    """The tool that must have spoken for its end to mean something; left out, the profiler whose rule it is."""
    others: str = ""
    """What is said where as many are counted as before and its words quote (`...`) other ones; empty: nothing."""
    follows_speed: Literal[1, -1] | None = None
    """For a signal that rests on a time: 1 where faster is more, -1 where it is less."""

    def written(self, value: float) -> str:
        """A value, as a change shows it."""
        return _WRITTEN[self.unit](value)

    def is_alike(self, before: float, now: float) -> bool:
        """Whether two values differ by too little to tell."""
        if self.unit == "share":
            return abs(before - now) < 0.015
        return abs(before - now) <= 0.05 * max(abs(before), abs(now))
