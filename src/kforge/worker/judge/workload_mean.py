"""One time for several workloads: the weighted geometric mean of each number, and an interval for the speedup."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kforge.types import BaselineTime, TimeLimit, Timing


def mean_timing(timings: Sequence[tuple[float, Timing]]) -> Timing:
    """The timing over workloads, from (weight, timing) of each; the weights add up to 1.

    Each speedup was measured on its own, so on a log scale what is uncertain of them adds up as squares do.
    """
    if len(timings) == 1:
        return timings[0][1]
    weights = [weight for weight, _ in timings]
    each = [timing for _, timing in timings]
    speedup = _mean(weights, [timing.speedup for timing in each])
    below = math.hypot(*(w * math.log(t.speedup / t.interval[0]) for w, t in timings))
    above = math.hypot(*(w * math.log(t.interval[1] / t.speedup) for w, t in timings))
    best = [timing.speedup_vs_best for timing in each if timing.speedup_vs_best is not None]
    blocks = min(len(timing.candidate_ns) for timing in each)
    limits = [timing.limit.ns for timing in each if timing.limit is not None]
    return Timing(
        baseline=each[0].baseline if len({timing.baseline for timing in each}) == 1 else "best",
        speedup=speedup,
        interval=(speedup * math.exp(-below), speedup * math.exp(above)),
        speedup_vs_best=_mean(weights, best) if len(best) == len(each) else None,
        candidate_ns=tuple(_mean(weights, [timing.candidate_ns[i] for timing in each]) for i in range(blocks)),
        baseline_ns=tuple(_mean(weights, [timing.baseline_ns[i] for timing in each]) for i in range(blocks)),
        calls_per_block=each[0].calls_per_block,
        checked_calls=sum(timing.checked_calls for timing in each),
        baselines=_mean_baselines(weights, each),
        clock_excess=max(timing.clock_excess for timing in each),
        peak_bytes=(max(timing.peak_bytes[0] for timing in each), max(timing.peak_bytes[1] for timing in each)),
        conditions=each[-1].conditions,
        flags=tuple(dict.fromkeys(flag for timing in each for flag in timing.flags)),
        contended=max(timing.contended for timing in each),
        limit=_mean_limit(weights, limits) if len(limits) == len(each) else None,
    )


def _mean(weights: Sequence[float], values: Sequence[float]) -> float:
    """The weighted geometric mean."""
    return math.exp(sum(weight * math.log(value) for weight, value in zip(weights, values, strict=True)))


def _mean_baselines(weights: list[float], timings: list[Timing]) -> tuple[BaselineTime, ...]:
    """Each baseline by its mean ratio to eager; without one where a workload has none."""
    named = [{item.name: item for item in timing.baselines} for timing in timings]
    baselines = []
    for name in named[0]:
        items = [items[name] for items in named if name in items]
        ratios = [item.ratio for item in items if item.ratio is not None]
        ratio = _mean(weights, ratios) if len(ratios) == len(timings) else None
        notes = dict.fromkeys(item.note for item in items if item.note)
        precision = next((item.precision for item in items if item.precision), "")
        baselines.append(BaselineTime(name, ratio, "; ".join(notes), precision))
    return tuple(baselines)


def _mean_limit(weights: list[float], limits: list[float]) -> TimeLimit:
    return TimeLimit(_mean(weights, limits), "the weighted geometric mean of the workloads' limits")
