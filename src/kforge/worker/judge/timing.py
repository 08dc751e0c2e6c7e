"""Candidate against baseline, interleaved, on inputs never seen before, with the judge's clock beside the runner's.

Both sides are runners of the same kind and read the same memory. A block is one call on each input set, in random
order, every output delivered to the judge before the next call. Before every block each set gets fresh content at the
same addresses. A candidate that works while the baseline runs is measured again, stopped meanwhile; if it works all the
same, it is refused.
"""

from __future__ import annotations

import contextlib
import operator
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kforge.worker.judge import statistics
from kforge.worker.judge.lane import Block, Lane
from kforge.worker.judge.scheduler_waits import MachineTimes

Check = Callable[[Lane, int, Block], None]
"""Verifies the output in a slot; raises if it is wrong."""

_WARM_BLOCKS = 3
_MIN_GROUPS = 5
_MAX_GROUPS = 200
_TIGHT = 0.005
_CHECK_EVERY = 3
_BARE_GROUPS = 3
_IDLE_SHARE = 0.03
_IDLE_BLOCKS = 3
_BUSY_PART = 0.125


class NotIdle(Exception):
    """The candidate works while the baseline is being timed."""


@dataclass
class Samples:
    """Mean time of a call per block, for both sides, in the order they were measured."""

    candidate: list[float] = field(default_factory=list)
    baseline: list[float] = field(default_factory=list)
    candidate_extra: list[float] = field(default_factory=list)
    """Per call: the judge's clock less the claimed time."""
    baseline_extra: list[float] = field(default_factory=list)
    calls_per_block: int = 0
    checked: int = 0
    reused: bool = False
    candidate_bare: list[float] = field(default_factory=list)
    """Per call, by the judge's clock alone, on a device apart from the processor."""
    baseline_bare: list[float] = field(default_factory=list)

    candidate_lost: list[float] = field(default_factory=list)
    """Per call: the most that other work on the machine can have added to the judge's clock."""
    baseline_lost: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        return statistics.group_ratios(self.baseline, self.candidate)

    def wall_ratios(self) -> list[float]:
        """The same by the judge's clock alone, delivery of the outputs included."""
        return statistics.group_ratios(
            list(map(operator.add, self.baseline, self.baseline_extra)),
            list(map(operator.add, self.candidate, self.candidate_extra)),
        )

    def with_more(self, more: Samples) -> Samples:
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

    def settle(self, others_ns: float, stolen: float) -> None:
        """Hold what each block may have lost against what others used of the processors in all the measurement.

        Threads of one program wait for each other too, where the kernel puts them on one processor. `stolen` is the
        share that was taken from the machine as a whole.
        """
        waited = self.calls_per_block * (sum(self.candidate_lost) + sum(self.baseline_lost))
        part = min(1.0, max(0.0, others_ns) / waited) if waited else 1.0
        self.candidate_lost = _settled(self.candidate_lost, part, stolen, self.candidate, self.candidate_extra)
        self.baseline_lost = _settled(self.baseline_lost, part, stolen, self.baseline, self.baseline_extra)

    def lost_share(self) -> float:
        """The share of the time that other work on the machine may have taken from the two sides."""
        lost = sum(self.candidate_lost) + sum(self.baseline_lost)
        return lost / max(
            1.0, sum(map(sum, (self.candidate, self.candidate_extra, self.baseline, self.baseline_extra)))
        )


def _settled(lost: list[float], part: float, stolen: float, claimed: list[float], extra: list[float]) -> list[float]:
    return [part * one + stolen * (two + three) for one, two, three in zip(lost, claimed, extra, strict=True)]


@dataclass
class Duel:
    """Two lanes over the same input sets, and how long they may run."""

    candidate: Lane
    baseline: Lane
    refresh: Callable[[], None]
    """Writes fresh content to the input sets."""
    seconds: float
    seeds: Callable[[], list[int | None]]
    """Per set: what to reseed torch with before the next call on it; None where the problem draws nothing."""
    check: Check | None = None
    check_all: bool = False
    """Verify every timed call: the second, stricter look."""
    bare: bool = False
    """Whether to end with calls that only the judge's clock times."""
    watched: bool = True
    """Whether the candidate is untrusted, and so must be seen to rest while the baseline runs."""
    stops: bool = False
    """Whether each side is stopped in the other's turn: the second look at one that did not seem to rest. What goes on
    after a stop is for a moment slower than it was."""
    _watched_blocks: int = 0
    _busy_blocks: int = 0

    def run(self) -> Samples:
        """ABBA groups until the interval is tight or the time is spent."""
        samples = Samples(calls_per_block=len(self.candidate.slots))
        self._watched_blocks = self._busy_blocks = 0
        for _ in range(_WARM_BLOCKS):
            for lane in (self.baseline, self.candidate):
                self._block(lane)
        began, machine, own = time.monotonic(), MachineTimes.now(), self._own_ns()
        for group in range(_MAX_GROUPS):
            # Which side begins is drawn, so that nobody can know whose turn is next.
            first = random.SystemRandom().choice(("bc", "cb"))
            for order in (first, first[::-1]):
                self._pair(order, samples)
            spent = time.monotonic() - began
            if spent > self.seconds and (group + 1 >= _MIN_GROUPS or spent > 20 * self.seconds):
                break
            if group + 1 >= 3 * _MIN_GROUPS:
                interval = statistics.median_interval(samples.ratios())
                if statistics.relative_width(interval) < _TIGHT:
                    break
        later = MachineTimes.now()
        if machine is not None and later is not None:
            others_ns = later.busy_ns - machine.busy_ns - (self._own_ns() - own)
            stolen = (later.stolen_ns - machine.stolen_ns) / (1e9 * max(1e-9, time.monotonic() - began))
            samples.settle(others_ns, stolen)
        if self.bare:
            self._bare(samples)
        return samples

    def _own_ns(self) -> int:
        """Processor time that the judge and both sides have used so far."""
        return time.process_time_ns() + self.candidate.runner.cpu_ns() + self.baseline.runner.cpu_ns()

    def _bare(self, samples: Samples) -> None:
        for side in "bccb" * _BARE_GROUPS:
            self.refresh()
            block = self._pass(self._lane(side), bare=True)
            spent = block.wall_ns / len(block.ns)
            (samples.candidate_bare if side == "c" else samples.baseline_bare).append(spent)
            if side == "c":
                self._verify(block, samples)

    def _pair(self, order: str, samples: Samples) -> None:
        for side in order:
            block = self._turn(side)
            # Only sums: in which call of a block a program works, or says it was slow, must not matter.
            typical = max(1.0, sum(block.ns) / len(block.ns))
            extra, lost = block.wall_ns / len(block.ns) - typical, block.lost_ns / len(block.ns)
            if side == "c":
                samples.candidate.append(typical)
                samples.candidate_extra.append(extra)
                samples.candidate_lost.append(lost)
                samples.reused |= block.reused
                self._verify(block, samples)
            else:
                samples.baseline.append(typical)
                samples.baseline_extra.append(extra)
                samples.baseline_lost.append(lost)

    def _turn(self, side: str) -> Block:
        if side == "b" and self.watched:
            return self._watched_block()
        # The baseline rests as the candidate does, or the threads that it leaves waiting would count for one side only.
        with self.baseline.runner.stopped() if self.stops else contextlib.nullcontext():
            return self._block(self._lane(side))

    def _lane(self, side: str) -> Lane:
        return self.candidate if side == "c" else self.baseline

    def _watched_block(self) -> Block:
        """The baseline's turn: a candidate that works meanwhile takes the processor away from it.

        Refreshing the inputs leaves it time to come to rest, on a machine that is not busy. One that is stopped is at
        rest; if it works all the same, it has itself continued, and no disturbance of the machine can look like that.
        """
        with self.candidate.runner.stopped() if self.stops else contextlib.nullcontext():
            self.refresh()
            before = self.candidate.runner.cpu_ns()
            block = self._pass(self.baseline)
            used_ns = self.candidate.runner.cpu_ns() - before
        self._watched_blocks += 1
        self._busy_blocks += used_ns > _IDLE_SHARE * block.wall_ns + 200_000
        if self._busy_blocks >= max(_IDLE_BLOCKS, _BUSY_PART * self._watched_blocks):
            when = "stopped" if self.stops else "not called"
            raise NotIdle(f"while it was {when}, it used {used_ns / block.wall_ns:.0%} of a processor")
        return block

    def _block(self, lane: Lane) -> Block:
        self.refresh()
        return self._pass(lane)

    def _pass(self, lane: Lane, bare: bool = False) -> Block:
        """One pass over the sets in random order."""
        dice = random.SystemRandom()
        order = list(range(len(lane.slots)))
        dice.shuffle(order)
        seeds = self.seeds()
        calls = [(index, index, seeds[index]) for index in order]
        block = lane.call(calls, look_at=dice.choice(order), bare=bare)
        return block.by_slot(order)

    def _verify(self, block: Block, samples: Samples) -> None:
        if self.check is None:
            return
        slots = list(range(len(block.ns)))
        if not self.check_all:
            # The first block always, later ones by chance: nobody can know which.
            if samples.checked and random.SystemRandom().randrange(_CHECK_EVERY):
                return
            slots = [block.glimpse.slot if block.glimpse else 0]
        for slot in slots:
            self.check(self.candidate, slot, block)
            samples.checked += 1


def set_count(call_seconds: float, bytes_per_set: int, room: int = 256 << 20, apart: bool = False) -> int:
    """How many input sets to rotate over: enough for a block of a few milliseconds, within `room` bytes.

    On a device `apart` from the processor each call has a fixed cost of its own, so fewer make a block.
    """
    wanted = max(5, round(0.006 / max(call_seconds, 1e-7)))
    affordable = room // max(bytes_per_set, 1)
    return max(1, min(wanted, affordable, 16)) if apart else max(2, min(wanted, affordable, 64))
