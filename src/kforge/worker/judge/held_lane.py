"""One side of a measurement on the processor, on the judge's clock alone.

The runner is stopped but in its turn. It holds the outputs of a block; once everything of it is stopped again, its
keeper reads them from its memory. So nothing that the program can replace takes part in timing or in delivery.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kforge.worker.arena import Arena, dtype_name, span
from kforge.worker.device_memory import DeviceArena
from kforge.worker.judge.contention import other_threads_running
from kforge.worker.judge.lane import NONSENSE, InputSets, Lane, bounded_output
from kforge.worker.judge.runner_handle import RunnerHandle
from kforge.worker.judge.scheduler_waits import TurnTimes
from kforge.worker.protocol.calls import CallRow, MakeTimedCalls, TimedOutputs, call_columns
from kforge.worker.protocol.keeper import ThreadPlace
from kforge.worker.protocol.records import HeldOutput, OutputLeaf, SlotOutput
from kforge.worker.wire import LAZY_VIEW

_MOST_ROUNDS = 256
REUSED = "forward returns the same storage every time: an earlier result is overwritten"
_PLAIN = ("Tensor", "Parameter")
_LONGEST_STEP = 1 << 48
Calls = list[CallRow]
Part = tuple[int, int]
"""First element and number of elements, in memory order."""
Parts = dict[tuple[int, int], list[Part]]
"""(slot, output) -> which elements of it to read."""


class NotOwned(Exception):
    """An output does not lie in memory of its own."""


@dataclass(frozen=True)
class HeldBlock:
    """What a row of calls gave, by slot."""

    wall_ns: int
    """From the moment the runner was continued until everything of it was stopped."""
    lost_ns: int
    """The most that other work on the machine can have added to that."""
    outputs: list[SlotOutput]
    addresses: list[list[int]]
    strides: list[list[tuple[int, ...]]]
    before_ns: int = 0
    """On a device that processes share: what the judge's own work right before it took."""
    after_ns: int = 0
    taken: list[Any] = field(default_factory=list)
    """On a device: what was copied of its outputs the moment it was done."""
    beside: tuple[int | None, ...] = ()
    """How many threads of others were ready to run right before and after it, as far as anybody says."""
    taken_ns: int = 0
    """The most that others can have taken of it, where they are told from the judge's own work; 0 on a device."""
    used_ns: int = 0
    """Processor time that the runner and everything it started used for it; 0 on a device."""


class HeldLane(Lane):
    """A lane that maps sets and slots into a runner, and leaves it stopped."""

    def __init__(
        self, runner: RunnerHandle, sets: InputSets, expected: tuple[torch.Tensor, ...], seconds: float, copies: bool
    ) -> None:
        """`copies`: the reference itself returns memory that is not its own."""
        self.copies = copies
        """Whether outputs are copied out of the program's memory before its next call: for one that uses it again."""
        self.copied_because = ""
        """Why, where the program is the reason."""
        self._wall_ns = 0
        super().__init__(runner, sets, expected, seconds)
        runner.stop()

    def _show_slots(self, arena: Arena | DeviceArena) -> None:
        assert isinstance(arena, Arena)
        # Where nobody may read a process from outside, it copies its outputs itself: both sides do, in their time.
        self.copies |= not self.runner.show_slots(arena)

    def time_calls(self, calls: Calls, parts: Parts) -> HeldBlock:
        """Make these calls, one for each slot, and read parts of the outputs. The runner is stopped before and after.

        NotOwned where that cannot be read.
        """
        block = self._run_block(calls, self.copies, idle=False)
        if not self.copies and self._overlaps(block):
            # It uses its memory again: what it returned must be taken before the next call, at its own cost.
            self.copies = True
            self.copied_because = REUSED
            block = self._run_block(calls, self.copies, idle=False)
        self.take(block, parts)
        return block

    def idle_ns(self, calls: Calls) -> int:
        """What everything but the calls takes, of a runner that is trusted; copying outputs is no part of it."""
        return self._run_block(calls, False, idle=True).wall_ns

    def sample_calls(self, calls: Calls, dice: random.Random, span_ns: float) -> list[list[ThreadPlace]]:
        """Make calls like timed ones, for a span of time: where the threads were at random moments of them."""
        # Copies would be the runner's work, and not the program's.
        rounds = max(1, min(_MOST_ROUNDS, round(span_ns / max(self._wall_ns, 1))))
        request = MakeTimedCalls(*call_columns(calls), rounds=rounds)
        return self.runner.ask_with_samples(request, self._seconds, lambda: dice.uniform(0.0005, 0.003))[1]

    def _run_block(self, calls: Calls, copies: bool, idle: bool) -> HeldBlock:
        request = MakeTimedCalls(*call_columns(calls), copies=copies, idle=idle)
        beside = [other_threads_running()]
        before = TurnTimes.now(self.runner)
        answer, wall = self.runner.ask_stopped(request, self._seconds)
        after = TurnTimes.now(self.runner)
        beside.append(other_threads_running())
        self._wall_ns = wall
        try:
            block = self._read(answer, request.slots, wall, before.lost_ns(after, wall))
            taken, used = before.taken_ns(after, wall), before.used_ns(after)
            return replace(block, beside=tuple(beside), taken_ns=taken, used_ns=used)
        except NONSENSE as error:
            raise self._nonsense_error(error) from None

    def _read(self, answer: TimedOutputs, slots: list[int], wall: int, lost: int) -> HeldBlock:
        kinds = [self._read_output(item) for item in answer.described]
        given = [kinds[which] for which in answer.which]
        if sum(len(output.leaves) for output, _ in given) != len(answer.addresses):
            raise ValueError("not an address for each tensor")
        if not all(0 <= address < 1 << 63 for address in answer.addresses):
            raise ValueError("an address that is none")
        places = iter(answer.addresses)
        addresses = [list(itertools.islice(places, len(output.leaves))) for output, _ in given]
        by_slot = sorted(zip(slots, given, addresses, strict=True), key=lambda item: item[0])
        outputs, strides = [output for _, (output, _), _ in by_slot], [steps for _, (_, steps), _ in by_slot]
        return HeldBlock(wall, lost, outputs, [leaf_addresses for _, _, leaf_addresses in by_slot], strides)

    def _read_output(self, output: HeldOutput) -> tuple[SlotOutput, list[tuple[int, ...]]]:
        leaves: list[OutputLeaf] = []
        for number, (kind, dtype, shape, device, steps) in enumerate(output.leaves):
            expected = self.slots[0][number] if number < len(self.slots[0]) else None
            plain = kind in _PLAIN or (self.copies and kind == LAZY_VIEW)
            fits = usual = False
            if expected is not None and plain and shape == tuple(expected.shape):
                fits = (
                    dtype == dtype_name(expected.dtype)
                    and len(steps) == len(shape)
                    and all(0 <= step < _LONGEST_STEP for step in steps)
                )
                usual = fits and steps == expected.stride()
            leaves.append(OutputLeaf(kind, dtype, shape, device, usual, fits))
        return bounded_output(SlotOutput(output.tree, tuple(leaves))), [leaf.stride for leaf in output.leaves]

    def _overlaps(self, block: HeldBlock) -> bool:
        """Whether two outputs share memory, or one cannot be read as it lies."""
        ranges: list[tuple[int, int]] = []
        for output, places, strides in zip(block.outputs, block.addresses, block.strides, strict=True):
            for leaf, place, steps, tensor in zip(output.leaves, places, strides, self.slots[0], strict=False):
                if not leaf.delivered or not tensor.numel():
                    continue
                if span(leaf.shape, steps) != tensor.numel():
                    return True
                ranges.append((place, place + tensor.numel() * tensor.element_size()))
        ranges.sort()
        return any(one[1] > two[0] for one, two in itertools.pairwise(ranges))

    def take(self, block: HeldBlock, parts: Parts) -> None:
        """Read parts into the slots; of an output in an unusual layout, all. NotOwned where that cannot be had."""
        if self.copies or not parts:
            return
        pieces: list[tuple[int, int, int]] = []
        for (slot, number), wanted in parts.items():
            leaves = block.outputs[slot].leaves
            if number >= len(leaves) or not leaves[number].delivered:
                continue
            spec, tensor = self.specs[slot][number], self.slots[slot][number]
            size = tensor.element_size()
            if not block.outputs[slot].leaves[number].usual_layout:
                wanted = [(0, tensor.numel())]
            pieces += [
                (block.addresses[slot][number] + first * size, count * size, spec.offset + first * size)
                for first, count in wanted
                if count
            ]
        refused = self.runner.take(pieces)
        if refused:
            reason = "memory that is shared, or belongs to a file" if refused == "not_own" else refused
            raise NotOwned(f"an output does not lie in memory of its own: {reason}")

    def output(self, block: HeldBlock, slot: int, number: int) -> torch.Tensor:
        """A tensor that was taken, as the program laid it out."""
        tensor = self.slots[slot][number]
        if self.copies or block.outputs[slot].leaves[number].usual_layout:
            return tensor
        return tensor.as_strided(tensor.shape, block.strides[slot][number])

    def read(self, block: HeldBlock, slot: int, number: int, parts: list[Part]) -> torch.Tensor:
        """What was taken of an output: whole, in its own shape, or rows."""
        tensor = self.output(block, slot, number)
        if len(parts) == 1:
            return tensor
        flat = tensor.reshape(-1)
        return torch.stack([flat[first : first + count] for first, count in parts])

    def is_settled(self, block: HeldBlock) -> bool:
        """Whether outputs are what they were when the block was done; on the processor nothing can write to them."""
        return True

    def has_changed_inputs(self, slot: int) -> bool:
        """Whether a set is no longer what the judge wrote there; on the processor nobody else can write to it."""
        return False


def shuffle_calls(count: int, seeds: list[int | None]) -> Calls:
    """One call on each set, in random order."""
    order = list(range(count))
    random.SystemRandom().shuffle(order)
    return [(number, number, seeds[number]) for number in order]
