"""Candidate against baseline, interleaved, on inputs never seen before, with the judge's clock beside the runner's.

Both sides are runners of the same kind; each is halted while the other runs. A block is one call on each input set,
in random order, every output delivered to the judge before the next call. Between two blocks of a side every set gets
fresh content at the same addresses.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kforge.worker.judge import statistics
from kforge.worker.judge.lane import Block, Lane

Refresh = Callable[[], None]
"""Writes fresh content to the input sets of both lanes."""
Check = Callable[[int, Block], None]
"""Verifies the output in a slot of the candidate's lane; raises if it is wrong."""

_WARM_BLOCKS = 2
_MIN_GROUPS = 5
_MAX_GROUPS = 200
_TIGHT = 0.005
_CHECK_EVERY = 3


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

    def ratios(self) -> list[float]:
        return statistics.group_ratios(self.baseline, self.candidate)

    def clock_excess(self) -> float:
        """Time per call that only the judge's clock saw, beyond what delivering the outputs costs the baseline.

        Hidden work shows in every block, so it must stand out from the ordinary spread of both sides.
        """
        quarter, three_quarters = len(self.candidate_extra) // 4, 3 * len(self.baseline_extra) // 4
        return max(0.0, sorted(self.candidate_extra)[quarter] - sorted(self.baseline_extra)[three_quarters])


@dataclass
class Duel:
    """Two lanes over the same number of sets, and how long they may run."""

    candidate: Lane
    baseline: Lane
    refresh: Refresh
    seconds: float
    seeds: list[int | None]
    """Per set: what to reseed torch with before each call; None where the problem draws nothing."""
    check: Check | None = None
    check_all: bool = False
    """Verify every timed call: the second, stricter look."""

    def run(self) -> Samples:
        """ABBA groups until the interval is tight or the time is spent."""
        # The judge's own worker threads would go on spinning into the block that follows.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return self._run()
        finally:
            torch.set_num_threads(threads)

    def _run(self) -> Samples:
        samples = Samples(calls_per_block=len(self.candidate.inputs))
        for lane in (self.baseline, self.candidate):
            lane.runner.stop()
        for _ in range(_WARM_BLOCKS):
            self.refresh()
            for lane in (self.baseline, self.candidate):
                self._block(lane)
        began = time.monotonic()
        for group in range(_MAX_GROUPS):
            for order in ("bc", "cb"):
                self.refresh()
                self._pair(order, samples)
            spent = time.monotonic() - began
            if spent > self.seconds and (group + 1 >= _MIN_GROUPS or spent > 20 * self.seconds):
                break
            if group + 1 >= 3 * _MIN_GROUPS:
                ratios = samples.ratios()
                if statistics.relative_width(statistics.median_interval(ratios)) < _TIGHT:
                    break
        return samples

    def _pair(self, order: str, samples: Samples) -> None:
        for side in order:
            lane = self.candidate if side == "c" else self.baseline
            block = self._block(lane)
            count = len(block.ns)
            claimed = sum(block.ns)
            if side == "c":
                samples.candidate.append(max(1.0, claimed / count))
                samples.candidate_extra.append((block.wall_ns - claimed) / count)
                samples.reused |= block.reused
                self._verify(block, samples)
            else:
                samples.baseline.append(max(1.0, claimed / count))
                samples.baseline_extra.append((block.wall_ns - claimed) / count)

    def _block(self, lane: Lane) -> Block:
        order = list(range(len(lane.inputs)))
        random.SystemRandom().shuffle(order)
        calls = [(index, index, self.seeds[index]) for index in order]
        lane.runner.go()
        block = lane.call(calls)
        lane.runner.stop()
        if order != sorted(order):
            # Outputs come in call order; hand them on in slot order.
            inverse = sorted(range(len(order)), key=order.__getitem__)
            block = Block(
                [block.ns[i] for i in inverse], block.wall_ns, [block.outputs[i] for i in inverse], block.reused
            )
        return block

    def _verify(self, block: Block, samples: Samples) -> None:
        if self.check is None:
            return
        slots = range(len(block.ns))
        if not self.check_all:
            # The first block always, later ones by chance: nobody can know which.
            if samples.checked and random.SystemRandom().randrange(_CHECK_EVERY):
                return
            slots = range(slot := random.SystemRandom().randrange(len(block.ns)), slot + 1)
        for slot in slots:
            self.check(slot, block)
            samples.checked += 1


def set_count(call_seconds: float, bytes_per_set: int) -> int:
    """How many input sets to rotate over: enough for a block of a few milliseconds, within 256 MiB."""
    wanted = round(0.004 / max(call_seconds, 1e-7))
    affordable = (256 << 20) // max(bytes_per_set, 1)
    return max(1 if bytes_per_set > 128 << 20 else 2, min(wanted, affordable, 64))


def tensor_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
