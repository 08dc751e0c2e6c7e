"""A measurement on the processor: the judge's clock around each block, and nobody running but whose turn it is.

Both sides are stopped while the judge writes inputs, each is stopped in the other's turn, and from the moment a block
is done until its outputs have been read. Every call of every block is verified, those that only warm up included.
"""

from __future__ import annotations

from dataclasses import dataclass

from kforge.worker.judge import statistics
from kforge.worker.judge.held_lane import Calls, HeldBlock, HeldLane, Parts, shuffle_calls
from kforge.worker.judge.held_outputs import OutputCheck
from kforge.worker.judge.interleaved_timer import InterleavedTimer, NotIdle, Samples

_IDLE_BLOCKS = 5
_MOST_DELIVERY = 0.25
"""The part of a time that being asked and holding outputs may account for."""
_REST_NS, _REST_BLOCKS = 200_000, 2


@dataclass
class HostTimer(InterleavedTimer):
    """Pairs of blocks on the same inputs, which nobody has seen before."""

    candidate: HeldLane
    baseline: HeldLane
    check: OutputCheck | None = None
    check_all: bool = False
    """Verify every element of every timed call: the second, stricter look."""
    suspected: bool = True
    """Whether nobody trusts the candidate's side; a baseline in its place may have helpers that work on, as
    torch.compile's do."""
    _not_at_rest: int = 0

    def _warm_up(self, samples: Samples) -> None:
        for number in self.warm_blocks():
            self._time_blocks("bc" if number % 2 else "cb", samples)

    def _time_pair(self, order: str, samples: Samples) -> None:
        blocks = self._time_blocks(order, samples)
        ours, theirs = blocks["c"], blocks["b"]
        samples.candidate.append(ours.wall_ns / len(ours.outputs))
        samples.baseline.append(theirs.wall_ns / len(theirs.outputs))
        samples.candidate_lost.append(ours.lost_ns / len(ours.outputs))
        samples.baseline_lost.append(theirs.lost_ns / len(theirs.outputs))
        samples.candidate_extra.append(0.0)
        samples.baseline_extra.append(0.0)

    def _time_blocks(self, order: str, samples: Samples) -> dict[str, HeldBlock]:
        self.candidate.runner.stop()
        self.baseline.runner.stop()
        before = self.candidate.runner.cpu_ns()
        self.refresh()
        self._check_idle(self.candidate.runner.cpu_ns() - before)
        seeds = self.seeds()
        blocks = {}
        slots = range(len(self.candidate.slots))
        parts = self.check.choose(slots, self.check_all) if self.check is not None else {}
        for side in order:
            lane = self.candidate if side == "c" else self.baseline
            before = self.candidate.runner.cpu_ns()
            blocks[side] = self._time_block(lane, shuffle_calls(len(slots), seeds), parts)
            block = blocks[side]
            self._meter.note(block.beside, side, block.taken_ns / block.wall_ns, block.used_ns / block.wall_ns)
            if side == "b":
                self._check_idle(self.candidate.runner.cpu_ns() - before)
        if self.check is not None:
            self.check(self.candidate, blocks["c"], self.baseline, blocks["b"], parts)
            samples.checked += len(blocks["c"].outputs)
        return blocks

    def _time_block(self, lane: HeldLane, calls: Calls, parts: Parts) -> HeldBlock:
        """Time a block of one side."""
        return lane.time_calls(calls, parts)

    def _check_idle(self, used_ns: int) -> None:
        """Check the stopping: while others work, the candidate uses no processor, and nothing of it ends."""
        if not self.suspected:
            return
        self._not_at_rest += abs(used_ns) > _REST_NS
        if self._not_at_rest >= _REST_BLOCKS:
            raise NotIdle("while it was stopped, it used a processor all the same")

    def _conclude(self, samples: Samples) -> None:
        """Measure what it costs to be asked and to hold outputs: the trusted side's word, for both."""
        samples.copied_because = "" if self.baseline.copies else self.candidate.copied_because
        calls, seeds = len(self.baseline.slots), self.seeds()
        spent = [float(self.baseline.idle_ns(shuffle_calls(calls, seeds))) for _ in range(_IDLE_BLOCKS)]
        samples.subtract_delivery(statistics.median(spent) / calls, _MOST_DELIVERY)
