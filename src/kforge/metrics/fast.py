"""fast_p: the share of problems that are correct and more than p times as fast as a baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kforge.metrics.intervals import wilson
from kforge.metrics.problem_results import any_emulated, count, is_correct, speedup
from kforge.metrics.records import Against, Point, Share
from kforge.types import Trial

GRID = (0.0, *sorted({*(10 ** (k / 20) for k in range(-20, 41)), 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0}))
"""Where curves are drawn: 0, then twenty steps for each power of ten from 0.1 to 100, and the places people ask for."""


def fast_p(trials: Sequence[Trial], p: float, against: Against = "eager") -> Share | None:
    """The share at any p of 0 or more; None where no problem counts."""
    if not p >= 0:
        raise ValueError("p of fast_p must be 0 or more")
    return _share(_speeds(count(trials).counting, against), p)


def curve(counting: Mapping[str, Sequence[Trial]], against: Against) -> tuple[Point, ...]:
    """fast_p over the grid, of problems that count; empty where how fast programs are is not known.

    Speeds are not known where some programs are correct and none was timed against that baseline, and in emulation.
    Where no program is correct they are: fast_p is 0 everywhere.
    """
    speeds = _speeds(counting, against)
    best = max((value for group in speeds for value in group), default=0.0)
    if best == 0 or (best < 0 and any(any_emulated(trials) for trials in counting.values())):
        return ()
    return tuple(Point(p, share) for p in GRID if (share := _share(speeds, p)) is not None)


def share_of(values: Sequence[float]) -> Share | None:
    """A share over problems, each of which is worth something between 0 and 1; None without problems."""
    if not values:
        return None
    middle = math.fsum(values) / len(values)
    low, high = wilson(middle, len(values))
    return Share(middle, low, high, len(values))


def _speeds(counting: Mapping[str, Sequence[Trial]], against: Against) -> list[list[float]]:
    """A number for each repetition of each problem: its speedup, 0 where correct without one, -1 where not correct."""
    return [
        [(speedup(trial, against) or 0.0) if is_correct(trial) else -1.0 for trial in trials]
        for trials in counting.values()
    ]


def _share(speeds: Sequence[Sequence[float]], p: float) -> Share | None:
    """fast_p of these speeds: a speedup must be more than p; for p = 0 it is enough to be correct."""
    return share_of([sum(value > p or value == p == 0.0 for value in group) / len(group) for group in speeds])
