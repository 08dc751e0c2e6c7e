"""A measurement on a device whose memory no other process maps: the runner's clock, and the judge's around each block.

Every output is delivered to the judge before the next call. Before every block each set gets fresh content at the same
addresses. The candidate's processes are stopped meanwhile, and while the baseline runs; one that works all the same is
refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from kforge.worker.judge.contention import other_threads_running
from kforge.worker.judge.interleaved_timer import InterleavedTimer, NotIdle, Samples
from kforge.worker.judge.lane import Lane, TimedBlock

Check = Callable[[Lane, int, TimedBlock], None]
"""Verifies the output in a slot; raises if it is wrong."""

_CHECK_EVERY = 3
_IDLE_SHARE = 0.03
_IDLE_BLOCKS = 3
_BUSY_PART = 0.125


@dataclass
class ClaimedTimer(InterleavedTimer):
    """Blocks whose time the runner claims from events on the device, with the judge's clock beside it."""

    candidate: Lane
    baseline: Lane
    check: Check | None = None
    check_all: bool = False
    """Verify every timed call: the second, stricter look."""
    watched: bool = True
    """Whether the candidate is untrusted, and so is stopped but in its turn, and seen to be."""
    _watched_blocks: int = 0
    _busy_blocks: int = 0

    def _warm_up(self, samples: Samples) -> None:
        self._watched_blocks = self._busy_blocks = 0
        for _ in self.warm_blocks():
            for lane in (self.baseline, self.candidate):
                self._time_block(lane)

    def _time_pair(self, order: str, samples: Samples) -> None:
        for side in order:
            block = self._time_side(side)
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

    def _time_side(self, side: str) -> TimedBlock:
        return self._time_watched_block() if side == "b" and self.watched else self._time_block(self._lane(side))

    def _lane(self, side: str) -> Lane:
        return self.candidate if side == "c" else self.baseline

    def _time_watched_block(self) -> TimedBlock:
        """Time the baseline: a candidate that is stopped and works all the same has itself continued."""
        self.candidate.runner.stop()
        before = self.candidate.runner.cpu_ns()
        block = self._time_block(self.baseline)
        used_ns = self.candidate.runner.cpu_ns() - before
        self._watched_blocks += 1
        self._busy_blocks += used_ns > _IDLE_SHARE * block.wall_ns + 200_000
        if self._busy_blocks >= max(_IDLE_BLOCKS, _BUSY_PART * self._watched_blocks):
            raise NotIdle(f"while it was stopped, it used {used_ns / block.wall_ns:.0%} of a processor")
        return block

    def _time_block(self, lane: Lane) -> TimedBlock:
        """Write fresh inputs, and time a pass over them."""
        if self.watched:
            self.candidate.runner.stop()
        self.refresh()
        return self._run_pass(lane)

    def _run_pass(self, lane: Lane) -> TimedBlock:
        """Call a lane once on each set, in random order."""
        dice = random.SystemRandom()
        order = list(range(len(lane.slots)))
        dice.shuffle(order)
        seeds = self.seeds()
        calls = [(index, index, seeds[index]) for index in order]
        # Afterwards the runner itself may still be at work.
        beside = other_threads_running()
        block = lane.call(calls, look_at=dice.choice(order))
        side = "c" if lane is self.candidate else "b"
        self._meter.note([beside], side, block.taken_ns / block.wall_ns, block.used_ns / block.wall_ns)
        return block.by_slot(order)

    def _verify(self, block: TimedBlock, samples: Samples) -> None:
        if self.check is None:
            return
        slots = list(range(len(block.ns)))
        if not self.check_all:
            # The first block always, later ones by chance: nobody can know which.
            if samples.checked and random.SystemRandom().randrange(_CHECK_EVERY):
                return
            slots = [block.sample.slot if block.sample else 0]
        for slot in slots:
            self.check(self.candidate, slot, block)
            samples.checked += 1
