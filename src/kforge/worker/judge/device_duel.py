"""A measurement on a device that processes share: the judge's events around each block, by its own stream.

The candidate is stopped while the baseline runs, and the device is seen at rest before. What the judge's own work right
before and after a block takes longer than it does beside the baseline is the candidate's, and charged to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from kforge.worker.judge import statistics
from kforge.worker.judge.device_lane import DeviceLane
from kforge.worker.judge.held_lane import Calls, HeldBlock, HeldLane, Parts
from kforge.worker.judge.host_duel import HostDuel
from kforge.worker.judge.timing import NotIdle, Samples

_REST_SECONDS = 1.0
_BARE_PAIRS, _BARE_CALLS, _BARE_NS = 4, 100, 2e7
_BUSY_NS = 20_000_000


@dataclass
class DeviceDuel(HostDuel):
    """Pairs of blocks on the same inputs, each side's in memory of its own."""

    candidate: DeviceLane
    baseline: DeviceLane
    rest: Callable[[float], bool] = lambda _seconds: True
    """Waits until nobody else has work on the device; whether that came."""
    bare: bool = False
    """Whether to end with calls whose launching counts."""
    # The device's change from one process to another, which nobody can avoid.
    most_delivery: ClassVar[float] = 0.75

    def _warm(self, samples: Samples) -> None:
        seeds = self.seeds()
        for lane in (self.baseline, self.candidate):
            lane.warm_up(seeds)
            lane.runner.stop()
        super()._warm(samples)

    def _blocks(self, order: str, samples: Samples) -> dict[str, HeldBlock]:
        # As many calls at a time for one side as for the other.
        self.candidate.at_a_time = self.baseline.at_a_time = min(self.candidate.most_ahead, self.baseline.most_ahead)
        return super()._blocks(order, samples)

    def _turn(self, lane: HeldLane, calls: Calls, parts: Parts) -> HeldBlock:
        if lane is self.baseline and not self.rest(_REST_SECONDS):
            raise NotIdle("while it was stopped, the device worked all the same")
        return lane.timed(calls, parts)

    def _pair(self, order: str, samples: Samples) -> None:
        blocks = self._blocks(order, samples)
        ours, theirs = blocks["c"], blocks["b"]
        calls = len(ours.outputs)
        samples.candidate.append(ours.wall_ns / calls)
        samples.baseline.append(theirs.wall_ns / calls)
        samples.candidate_lost.append(ours.lost_ns / calls)
        samples.baseline_lost.append(theirs.lost_ns / calls)
        samples.candidate_extra.append(ours.around_ns / calls)
        samples.baseline_extra.append(theirs.around_ns / calls)

    def _conclude(self, samples: Samples) -> None:
        super()._conclude(samples)
        samples.charge_around()
        if self.bare and self.baseline.at_a_time:
            self._bare(samples)

    def _bare(self, samples: Samples) -> None:
        """Calls that nobody verifies: they show what launching takes beside the work."""
        calls = len(self.baseline.slots)
        usual = max(statistics.median(samples.candidate), statistics.median(samples.baseline), 1.0)
        rounds = max(1, min(-(-_BARE_CALLS // calls), int(_BARE_NS / (calls * usual))))
        for number in range(_BARE_PAIRS):
            pairs = [(self.baseline, samples.baseline_bare), (self.candidate, samples.candidate_bare)]
            for lane, spent in pairs if number % 2 else reversed(pairs):
                spent.append(lane.launching_ns(rounds))

    def _see_rest(self, used_ns: int) -> None:
        """On the processor nothing of what is timed happens: only one that is busy for long can disturb it."""
        if used_ns > _BUSY_NS:
            super()._see_rest(used_ns)
