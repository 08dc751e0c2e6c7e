"""Candidate against baseline, interleaved, on inputs never seen before: the samples, and when there are enough.

Both sides are runners of the same kind and get the same inputs. A block is one call on each input set, in random
order. How a block is timed is the device's matter: `host_timer` for the processor, `device_timer` for a device whose
memory the judge maps, `claimed_timer` for any other.
"""

from __future__ import annotations

import math
import operator
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kforge.worker.judge import statistics
from kforge.worker.judge.contention import (
    LEAST_GROUPS,
    ContentionMeter,
    choose_groups,
    free_processors,
    is_contended,
)
from kforge.worker.judge.own_processors import own_processors, usable_processors
from kforge.worker.judge.scheduler_waits import MachineTimes

_WARM_BLOCKS, _WARM_SECONDS = 3, 0.05
"""Blocks that do not count: so many, or as many as begin within so long."""
_MAX_GROUPS = 200
_PATIENCE = 3.0
"""How long contended groups are measured again, beside the time given: this many times as long."""
_ENOUGH_GROUPS = 6
"""Groups after which a tight interval is enough."""
_TIGHT, _TIGHT_SHARE = 0.005, 0.02
"""Half an interval's width, on a log scale, that is narrow enough, beside a share of the speedup's own logarithm."""
_MOST_SETS, _MOST_SMALL_SETS, _SMALL_SET = 64, 256, 1 << 16


class NotIdle(Exception):
    """The candidate works while the baseline is being timed."""


@dataclass
class Samples:
    """Mean time of a call per block, for both sides, in the order they were measured.

    That is the judge's clock, or what a runner claims, with the judge's clock beside.
    """

    candidate: list[float] = field(default_factory=list)
    baseline: list[float] = field(default_factory=list)
    candidate_extra: list[float] = field(default_factory=list)
    """Per call: the judge's clock less the claimed time, or what its own work right before and after took."""
    baseline_extra: list[float] = field(default_factory=list)
    calls_per_block: int = 0
    checked: int = 0
    reused: bool = False
    candidate_bare: list[float] = field(default_factory=list)
    """Per call, launching included, where that has no part in the time."""
    baseline_bare: list[float] = field(default_factory=list)

    candidate_lost: list[float] = field(default_factory=list)
    """Per call: the most that other work on the machine can have added to the judge's clock."""
    baseline_lost: list[float] = field(default_factory=list)
    copied_because: str = ""
    """Why the candidate's outputs had to be copied in its own time."""
    baseline_seen: list[float] = field(default_factory=list)
    """As measured, where blocks of the baseline that took longer than usual count as usual ones."""
    charged: float = 0.0
    """The share of the candidate's time that it took from the judge's own work, right before and after."""
    contended: float = 0.0
    """The share of the processors' time that others took in these blocks; 0 where they had them for themselves."""
    others_known: bool = True
    """Whether anything told of other work."""

    def keep_groups(self, groups: list[int]) -> None:
        """Leave out what belongs to other ABBA groups than these."""
        blocks = [block for group in groups for block in (2 * group, 2 * group + 1)]
        for name in _PER_BLOCK:
            values = getattr(self, name)
            setattr(self, name, [values[block] for block in blocks] if values else values)

    def ratios(self) -> list[float]:
        return statistics.group_ratios(self.baseline, self.candidate)

    def width(self, groups: list[int] | None = None) -> float:
        """Half the width of the speedup's interval, on a log scale; by some groups only, or by all."""
        ratios = self.ratios()
        return statistics.relative_width(
            statistics.median_interval(ratios if groups is None else [ratios[group] for group in groups])
        )

    def is_tight(self, groups: list[int]) -> bool:
        """Whether more groups would decide nothing: the farther a speedup is from 1, the less it has to be known."""
        speedup = statistics.median([self.ratios()[group] for group in groups])
        return self.width(groups) < _TIGHT + _TIGHT_SHARE * abs(math.log(speedup))

    def merge(self, more: Samples) -> Samples:
        """Both measurements as one."""
        return Samples(
            self.candidate + more.candidate,
            self.baseline + more.baseline,
            self.candidate_extra + more.candidate_extra,
            self.baseline_extra + more.baseline_extra,
            self.calls_per_block,
            self.checked + more.checked,
            self.reused or more.reused,
            self.candidate_bare + more.candidate_bare,
            self.baseline_bare + more.baseline_bare,
            self.candidate_lost + more.candidate_lost,
            self.baseline_lost + more.baseline_lost,
            self.copied_because or more.copied_because,
            self.baseline_seen + more.baseline_seen,
            max(self.charged, more.charged),
            (self.contended * len(self.candidate) + more.contended * len(more.candidate))
            / max(1, len(self.candidate) + len(more.candidate)),
            self.others_known and more.others_known,
        )

    def hidden_ns(self) -> float:
        """Time per call that bare calls take beyond the claim, more than they take beyond the baseline's."""
        if not self.candidate_bare:
            return 0.0
        mine = statistics.median(self.candidate_bare) - statistics.median(self.candidate)
        return mine - (statistics.median(self.baseline_bare) - statistics.median(self.baseline))

    def clock_excess(self, lost: list[float] | None = None) -> float:
        """Time per call that only the judge's clock saw, beyond what delivering the outputs costs the baseline.

        Hidden work shows in every block, so it must stand out from the ordinary spread of both sides. With `lost`, per
        block of the candidate: without what other work on the machine can have caused of it.
        """
        own: list[float] = sorted(map(operator.sub, self.candidate_extra, lost) if lost else self.candidate_extra)
        usual = sorted(self.baseline_extra)
        return max(0.0, own[len(own) // 4] - usual[3 * len(usual) // 4])

    def subtract_delivery(self, cost_ns: float, most: float) -> None:
        """Take off what asking and holding outputs cost per call, as a trusted program shows; at most a part of all.

        So a program that makes its share of it cheaper gains less than that.
        """
        self.candidate = [spent - min(cost_ns, spent * most) for spent in self.candidate]
        self.baseline = [spent - min(cost_ns, spent * most) for spent in self.baseline]

    def charge(self, candidate: list[float], baseline: list[float]) -> None:
        """Add what each block of either side took from the judge's own work beside it."""
        before = sum(self.candidate)
        self.candidate = list(map(operator.add, self.candidate, candidate))
        self.baseline = list(map(operator.add, self.baseline, baseline))
        self.charged = 1.0 - before / max(sum(self.candidate), 1.0)

    def cap_baseline(self, most_ns: float) -> None:
        """Count no block of the baseline as longer than it takes when nobody holds it back."""
        self.baseline_seen = self.baseline
        self.baseline = [min(spent, most_ns) for spent in self.baseline]

    def settle(self, others_ns: float, stolen: float) -> None:
        """Hold what each block may have lost against what others used of the processors in all the measurement.

        Threads of one program wait for each other too, where the kernel puts them on one processor. `stolen` is the
        share that was taken from the machine as a whole.
        """
        waited = self.calls_per_block * (sum(self.candidate_lost) + sum(self.baseline_lost))
        part = min(1.0, max(0.0, others_ns) / waited) if waited else 1.0
        self.candidate_lost = _settle_losses(self.candidate_lost, part, stolen, self.candidate, self.candidate_extra)
        self.baseline_lost = _settle_losses(self.baseline_lost, part, stolen, self.baseline, self.baseline_extra)


_PER_BLOCK = (
    *("candidate", "baseline", "candidate_extra", "baseline_extra"),
    *("candidate_lost", "baseline_lost"),
)


def _settle_losses(
    lost: list[float], part: float, stolen: float, claimed: list[float], extra: list[float]
) -> list[float]:
    return [part * one + stolen * (two + three) for one, two, three in zip(lost, claimed, extra, strict=True)]


@dataclass
class InterleavedTimer:
    """Two lanes over the same input sets, and how long they may run."""

    candidate: Any
    baseline: Any
    refresh: Callable[[], None]
    """Writes fresh content to the input sets."""
    seconds: float
    seeds: Callable[[], list[int | None]]
    """Per set: what to reseed torch with before the next call on it; None where the problem draws nothing."""

    is_warm = False
    """Whether both sides, the machine and its clocks have been at work until now: then less is done that does not
    count."""
    on_processor: ClassVar[bool] = True
    """Whether other work on the processors takes something from what is timed."""

    def __post_init__(self) -> None:
        self._meter = ContentionMeter(self._own_ns, own_processors() if self.on_processor else None)

    def run(self) -> Samples:
        """Time ABBA groups until the interval is tight or the time is spent; those beside other work do not count,
        and others are measured in their place, within reason.
        """
        samples = Samples(calls_per_block=len(self.candidate.slots))
        self._warm_up(samples)
        mine = self._meter.own_processors
        began, machine, own = time.monotonic(), MachineTimes.now(mine), self._own_ns()
        self._meter.begin()
        contended: list[bool] = []
        seconds: list[float] = []
        while len(contended) < (1 + _PATIENCE) * _MAX_GROUPS:
            since = time.monotonic()
            # Which side begins is drawn, so that nobody can know whose turn is next.
            first = random.SystemRandom().choice(("bc", "cb"))
            for order in (first, first[::-1]):
                self._time_pair(order, samples)
            self._meter.end_group()
            seconds.append(time.monotonic() - since)
            contended = self._contended_groups()
            if self._is_enough(samples, contended, seconds):
                self._meter.settle()
                contended = self._contended_groups()
                if self._is_enough(samples, contended, seconds):
                    break
        later = MachineTimes.now(mine)
        if machine is not None and later is not None:
            others_ns = later.busy_ns - machine.busy_ns - (self._own_ns() - own)
            stolen = (later.stolen_ns - machine.stolen_ns) / (1e9 * max(1e-9, time.monotonic() - began))
            samples.settle(others_ns, stolen)
        self._choose(samples, contended)
        self._conclude(samples)
        return samples

    def _contended_groups(self) -> list[bool]:
        if not self.on_processor:
            return [False] * len(self._meter.others)
        threads = [lane.runner.working_threads() for lane in (self.candidate, self.baseline)]
        processors = usable_processors()
        free = free_processors(processors, max(processors if count is None else count for count in threads))
        return [is_contended(others, free) for others in self._meter.others]

    def _is_enough(self, samples: Samples, contended: list[bool], seconds: list[float]) -> bool:
        """Whether the groups without other work say enough, or nobody can wait for more of them."""
        quiet = [number for number, other in enumerate(contended) if not other]
        spent = sum(seconds)
        useful = sum(seconds[number] for number in quiet)
        if spent - useful > _PATIENCE * self.seconds and (len(contended) >= LEAST_GROUPS or spent > 20 * self.seconds):
            return True
        if len(quiet) >= _MAX_GROUPS:
            return True
        if useful > self.seconds and (len(quiet) >= LEAST_GROUPS or spent > 20 * self.seconds):
            return True
        return len(quiet) >= _ENOUGH_GROUPS and samples.is_tight(quiet)

    def _choose(self, samples: Samples, contended: list[bool]) -> None:
        """Let the samples rest on groups without other work, or say how much of it there was."""
        chosen = choose_groups(contended)
        if any(contended[group] for group in chosen):
            others = sum(self._meter.others[group] for group in chosen) / len(chosen)
            samples.contended = min(1.0, others / usable_processors())
        samples.others_known = self._meter.is_known
        samples.keep_groups(chosen)

    def warm_blocks(self) -> Iterator[int]:
        """The numbers of blocks that do not count."""
        began = time.monotonic()
        for number in range(1 if self.is_warm else _WARM_BLOCKS):
            if not number or time.monotonic() - began < _WARM_SECONDS:
                yield number

    def _warm_up(self, samples: Samples) -> None:
        """Run blocks that do not count."""
        raise NotImplementedError

    def _time_pair(self, order: str, samples: Samples) -> None:
        """Time a block of each side, "b" and "c" in this order."""
        raise NotImplementedError

    def _conclude(self, samples: Samples) -> None:
        """Measure what is measured at the end, once."""

    def _own_ns(self) -> int:
        """Processor time that the judge and both sides have used so far."""
        runners = (self.candidate.runner, self.baseline.runner)
        return int(time.process_time_ns() + sum(runner.cpu_ns() + runner.keeper_ns() for runner in runners))


def count_sets(
    call_seconds: float, bytes_per_set: int, room: int = 256 << 20, apart: bool = False, is_further: bool = False
) -> int:
    """How many input sets to rotate over: enough for a block of a few milliseconds, within `room` bytes.

    On a device `apart` from the processor a block has a fixed cost of its own, so it is longer. A workload that
    `is_further` is one of several in the mean, so there are at most half as many: all are written before each block.
    """
    affordable = room // max(bytes_per_set, 1)
    share = 2 if is_further else 1
    if apart:
        return max(1, min(max(5, round(0.006 / max(call_seconds, 1e-7))), affordable, _MOST_SETS // share))
    most = _MOST_SETS if bytes_per_set > _SMALL_SET else _MOST_SMALL_SETS
    return max(2, min(max(3, round(0.003 / share / max(call_seconds, 1e-7))), affordable, most // share))
