"""A measurement on a device that processes share: the judge's events around each block, by its own stream.

The candidate is stopped while the baseline runs, and the device is seen at rest before. What a baseline takes with no
candidate about is known, and it never counts as slower than that; what the judge's own work right before and after a
block takes longer than it does then is the candidate's, and charged to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from kforge.worker.judge import statistics
from kforge.worker.judge.device_lane import DeviceLane
from kforge.worker.judge.held_lane import Calls, HeldBlock, HeldLane, NotOwned, Parts, shuffle_calls
from kforge.worker.judge.host_timer import HostTimer
from kforge.worker.judge.interleaved_timer import NotIdle, Samples

_REST_SECONDS = 1.0
_BARE_PAIRS, _BARE_CALLS, _BARE_NS = 4, 100, 2e7
_LONG_NS, _BUSY_NS = 1_000_000, 20_000_000
_IDLE_BLOCKS = 5
_SLACK, _SLACK_OUTSIDE = 1.02, 1.1
"""By how much a baseline may be slower than it usually is: by the device's clock, and by the processor's."""
_AHEAD, _OUTSIDE = 0.75, 0.25
"""The part of a time that an empty block may account for: the device's change from one process to another, which nobody
can avoid, or all that is done by the processor.
"""


@dataclass(frozen=True)
class Quiet:
    """What blocks take with no candidate about."""

    call_ns: float
    idle_ns: float
    """Of a block without calls."""
    before_ns: float
    after_ns: float
    """What the judge's own work before and after a block seldom takes longer than."""


@dataclass
class DeviceTimer(HostTimer):
    """Pairs of blocks on the same inputs, each side's in memory of its own."""

    candidate: DeviceLane
    baseline: DeviceLane
    rest: Callable[[float], bool] = lambda _seconds: True
    """Waits until nobody else has work on the device; whether that came."""
    quiet: Callable[[int], Quiet | None] = lambda _at_a_time: None
    """What is usual with so many calls at a time; None where nobody has to be suspected."""
    usual_ns: Callable[[int], float] = lambda _at_a_time: 0.0
    """What a call of the baseline usually takes; 0 where that is not known."""
    most: int | None = None
    """How many calls to launch ahead at most."""
    bare: bool = False
    """Whether to end with calls whose launching counts."""
    seen: Quiet | None = None
    """What this measurement says is usual; of use where both sides are trusted."""
    _beside: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {"c": [], "b": []})
    _last: HeldBlock | None = None
    on_processor: ClassVar[bool] = False

    def _warm_up(self, samples: Samples) -> None:
        seeds = self.seeds()
        for lane in (self.baseline, self.candidate):
            lane.warm_up(seeds)
            lane.runner.stop()
        super()._warm_up(samples)

    def _time_blocks(self, order: str, samples: Samples) -> dict[str, HeldBlock]:
        # As many calls at a time for one side as for the other.
        at_a_time = min(self.candidate.most_ahead, self.baseline.most_ahead)
        at_a_time = at_a_time if self.most is None else min(at_a_time, self.most)
        self.candidate.at_a_time = self.baseline.at_a_time = at_a_time
        return super()._time_blocks(order, samples)

    def _time_block(self, lane: HeldLane, calls: Calls, parts: Parts) -> HeldBlock:
        if lane is self.baseline:
            self._check_device_idle()
        return lane.time_calls(calls, parts)

    def _check_device_idle(self) -> None:
        """Check, before every turn of the baseline, that nothing of the candidate's is left on the device."""
        if not self.rest(_REST_SECONDS):
            raise NotIdle("while it was stopped, the device worked all the same")

    def _time_pair(self, order: str, samples: Samples) -> None:
        blocks = self._time_blocks(order, samples)
        ours, theirs = blocks["c"], blocks["b"]
        calls = len(ours.outputs)
        samples.candidate.append(ours.wall_ns / calls)
        samples.baseline.append(theirs.wall_ns / calls)
        samples.candidate_lost.append(ours.lost_ns / calls)
        samples.baseline_lost.append(theirs.lost_ns / calls)
        samples.candidate_extra.append(0.0)
        samples.baseline_extra.append(0.0)
        for side, block in blocks.items():
            self._beside[side].append((block.before_ns, block.after_ns))
        self._last = ours

    def _conclude(self, samples: Samples) -> None:
        samples.copied_because = "" if self.baseline.copies else self.candidate.copied_because
        at_a_time, calls = self.baseline.at_a_time, len(self.baseline.slots)
        if self._last is not None and not self.candidate.outputs_are_apart(self._last):
            raise NotOwned("two outputs lie in the same memory, under two addresses")
        quiet = self.quiet(at_a_time)
        self.candidate.at_a_time = self.baseline.at_a_time = at_a_time
        idle = self._idle_ns()
        idle = min(idle, quiet.idle_ns * _SLACK) if quiet is not None else idle
        samples.subtract_delivery(idle / calls, _AHEAD if at_a_time else _OUTSIDE)
        before, after = (_upper_quartile([block[part] for block in self._beside["b"]]) for part in (0, 1))
        if quiet is not None:
            before, after = min(before, quiet.before_ns), min(after, quiet.after_ns)
        samples.charge(*(_excess_ns(self._beside[side], before, after, calls) for side in "cb"))
        self.seen = Quiet(statistics.median(samples.baseline), idle, before, after)
        if quiet is not None:
            samples.cap_baseline(self._most_ns(samples, at_a_time))
        if at_a_time:
            # By the device's clock nobody on the processor can have taken any of it.
            samples.candidate_lost, samples.baseline_lost = ([0.0] * len(samples.candidate) for _ in range(2))
        if self.bare and at_a_time:
            self._time_bare_calls(samples)

    def _idle_ns(self) -> float:
        spent = []
        for _ in range(_IDLE_BLOCKS):
            self._check_device_idle()
            spent.append(float(self.baseline.idle_ns(shuffle_calls(len(self.baseline.slots), self.seeds()))))
        return statistics.median(spent)

    def _most_ns(self, samples: Samples, at_a_time: int) -> float:
        """What a call of the baseline counts as at most: others can only make it slower."""
        usual = self.usual_ns(at_a_time) or float("inf")
        if at_a_time:
            return usual * _SLACK
        faster = sorted(samples.baseline)[len(samples.baseline) // 4]
        return min(usual, faster) * _SLACK_OUTSIDE

    def _time_bare_calls(self, samples: Samples) -> None:
        """Time calls that nobody verifies: they show what launching takes beside the work."""
        calls = len(self.baseline.slots)
        usual = max(statistics.median(samples.candidate), statistics.median(samples.baseline), 1.0)
        rounds = max(1, min(-(-_BARE_CALLS // calls), int(_BARE_NS / (calls * usual))))
        # Beside a long call launching is next to nothing: what is left to find is long, too.
        few = self.is_warm or usual > _LONG_NS
        for number in range(_BARE_PAIRS // 2 if few else _BARE_PAIRS):
            pairs = [(self.baseline, samples.baseline_bare), (self.candidate, samples.candidate_bare)]
            for lane, spent in pairs if number % 2 else reversed(pairs):
                self._check_device_idle()
                spent.append(lane.launching_ns(rounds))

    def _check_idle(self, used_ns: int) -> None:
        """Check for long work only: nothing of what is timed happens on the processor, and little disturbs nobody."""
        if used_ns > _BUSY_NS:
            super()._check_idle(used_ns)


def _upper_quartile(values: list[int]) -> float:
    return float(sorted(values)[3 * len(values) // 4]) if values else 0.0


def _excess_ns(beside: list[tuple[int, int]], before: float, after: float, calls: int) -> list[float]:
    """Per call of each block: what either part took longer; what one saves does not pay for the other."""
    return [(max(0.0, one - before) + max(0.0, two - after)) / calls for one, two in beside]
