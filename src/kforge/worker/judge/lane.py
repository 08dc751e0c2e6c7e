"""One side of a measurement: a runner, the input sets it reads, and slots its outputs are delivered to."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.arena import Arena, ArenaLayout, Side
from kforge.worker.device_memory import DeviceArena
from kforge.worker.judge.device import Device
from kforge.worker.judge.runner_handle import RunnerHandle, RunnerLost
from kforge.worker.judge.scheduler_waits import TurnTimes
from kforge.worker.protocol.calls import (
    CallRow,
    CheckedOutputs,
    ForgetInputs,
    MakeCheckedCalls,
    MapInputs,
    RecordCall,
    RecordedCall,
    ReleaseMemory,
    WatchCall,
    WatchedCall,
    call_columns,
)
from kforge.worker.protocol.records import ArgumentSet, SlotOutput, Spec

NONSENSE = (KeyError, ValueError, TypeError, IndexError, OverflowError, AttributeError, RecursionError)
"""What reading a reply that makes no sense may raise."""

_clock = time.perf_counter_ns
_dice = random.SystemRandom()
_PROBES = 64
_LONGEST_KIND = 200


class InputSets:
    """Argument lists in shared memory. On the processor both sides of a measurement read the same bytes."""

    def __init__(
        self,
        sets: list[list[Any]],
        device: Device,
        read_only: bool = False,
        ahead_ns: int = 0,
        guarded: Side | None = None,
    ) -> None:
        """`guarded`: which side of each tensor touches pages that runners cannot access."""
        self.device = device
        self.ahead_ns = ahead_ns
        self.read_only = read_only
        """Whether runners may only read: then no side can spoil the other's inputs."""
        layout = ArenaLayout(guarded)
        packed = [trees.pack(arguments) for arguments in sets]
        specs: list[list[Spec]] = []
        self.spans: list[tuple[int, int]] = []
        """Set -> which bytes of the memory are its own."""
        for _, tensors in packed:
            start = layout.size
            specs.append([layout.place(tensor) for tensor in tensors])
            self.spans.append((start, layout.size))
        self.arena = device.arena(layout.size)
        self.arena.poison(layout.fences if guarded else ())
        self._layout = layout
        self.tensors = [[self.arena.tensor(spec) for spec in row] for row in specs]
        """Set -> its tensors, as a runner sees them."""
        for places, (_, tensors) in zip(self.tensors, packed, strict=True):
            for place, tensor in zip(places, tensors, strict=True):
                place.copy_(tensor)
        device.synchronize()
        if read_only:
            self.arena.seal_against_others()
        self.described = tuple(ArgumentSet(tree, tuple(row)) for (tree, _), row in zip(packed, specs, strict=True))

    def twin(self) -> InputSets:
        """Sets of the same layout in other memory, for who is not to share it. Their content is to be written."""
        twin = copy.copy(self)
        twin.arena = self.device.arena(self.arena.size)
        twin.arena.poison()
        twin.tensors = [[twin.arena.tensor(spec) for spec in row] for _, row in self.described]
        return twin

    def write(self, number: int, arguments: list[Any]) -> None:
        """Give a set other content, of the same shapes."""
        for place, tensor in zip(self.tensors[number], trees.pack(arguments)[1], strict=True):
            place.copy_(tensor)
        self.device.synchronize()

    @property
    def guards(self) -> list[tuple[int, int]]:
        """Pages that runners cannot access, as bytes of the memory."""
        return self._layout.guards

    def place_written(self) -> str:
        """Where something was written outside of the inputs, in words; empty where nothing was."""
        offset = self.arena.changed_poison(self._layout.fences)
        return "" if offset is None else self._describe_place(offset)

    def place_of_fault(self, offset: int) -> str:
        """Where an access was, in bytes from the start of the memory: in words if in a guard; empty if not."""
        is_guarded = any(start <= offset < stop for start, stop in self.guards)
        return self._describe_place(offset) if is_guarded else ""

    def _describe_place(self, offset: int) -> str:
        number, where = self._layout.neighbour(offset)
        return f"{where} input {number}"

    def close(self) -> None:
        self.arena.close()


@dataclass(frozen=True)
class SlotSample:
    """A few elements of a slot, read the moment the runner said it was done."""

    slot: int
    places: tuple[torch.Tensor, ...]
    """Of each of its tensors that holds anything."""
    values: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class TimedBlock:
    """What a row of calls gave."""

    ns: list[int]
    """Claimed time of each call."""
    wall_ns: int
    """The judge's own clock around the whole block."""
    outputs: list[SlotOutput]
    reused: bool
    """Whether the same storage was returned twice."""
    shared: bool
    """Whether an output lies in memory of another output, an input or a parameter."""
    sample: SlotSample | None
    lost_ns: int = 0
    """The most that other work on the machine can have added to the judge's clock."""
    taken_ns: int = 0
    """The most that others can have taken of it, where they are told from the judge's own work."""
    used_ns: int = 0
    """Processor time that the runner and everything it started used for it."""

    def by_slot(self, order: list[int]) -> TimedBlock:
        """The same block with its calls in slot order rather than in the order they were made."""
        places = sorted(range(len(order)), key=order.__getitem__)
        return replace(self, ns=[self.ns[i] for i in places], outputs=[self.outputs[i] for i in places])


class Lane:
    """A lane maps sets and slots into a runner; `call` runs a block. The slots stay readable here."""

    def __init__(
        self, runner: RunnerHandle, sets: InputSets, expected: tuple[torch.Tensor, ...], seconds: float
    ) -> None:
        self.runner = runner
        self.sets = sets
        self._seconds = seconds
        layout = ArenaLayout()
        self.specs = [[layout.place(tensor) for tensor in expected] for _ in sets.tensors]
        """Slot -> where each of its tensors lies in the memory they share."""
        self.slots: list[list[torch.Tensor]] = []
        """Slot -> the tensors delivered there."""
        self._connect(layout.size)

    def _connect(self, slots_bytes: int) -> None:
        """Map sets and slots into the runner."""
        arena = self._make_slots(slots_bytes)
        try:
            self.runner.ask(ForgetInputs(), self._seconds)
            self.runner.ask(self._mapping(arena), self._seconds, (self.sets.arena.fd, arena.fd))
            self._show_slots(arena)
        finally:
            arena.close()

    def _make_slots(self, size: int) -> Arena | DeviceArena:
        arena = self.sets.device.arena(size)
        if isinstance(arena, DeviceArena):
            # Nothing of an earlier result is left where a runner can read it.
            arena.poison()
        self.slots = [[arena.tensor(spec) for spec in row] for row in self.specs]
        self.sets.device.synchronize()
        return arena

    def _mapping(self, slots: Arena | DeviceArena | None) -> MapInputs:
        """The request that maps the sets, and slots where there are any."""
        sets = self.sets
        return MapInputs(
            sets_bytes=sets.arena.size,
            slots_bytes=slots.size if slots is not None else 0,
            read_only=sets.read_only or sets.device.supports_ipc,
            on_device=sets.device.supports_ipc,
            ahead_ns=sets.ahead_ns,
            sets=sets.described,
            slots=tuple(map(tuple, self.specs)) if slots is not None else (),
            guards=tuple(sets.guards),
        )

    def _show_slots(self, arena: Arena | DeviceArena) -> None:
        """Show the memory of the slots to who needs it, before its descriptor is closed here."""

    def release(self, seconds: float) -> None:
        """Have the runner give up what it only keeps for later."""
        self.runner.ask(ReleaseMemory(), seconds)

    def bring_inputs(self) -> None:
        """Have the runner see what the sets hold now; nothing to do where it reads the very same memory."""

    def warm_up(self, seeds: list[int | None]) -> None:
        """Call once on every set, which takes as long as it takes."""
        self.call([(number, number, seed) for number, seed in enumerate(seeds)])

    def call(
        self,
        calls: list[CallRow],
        poison: bool = False,
        look_at: int = 0,
        checked: bool = False,
        poison_heap: bool = False,
    ) -> TimedBlock:
        """Run (set, slot, seed) calls in a row, and glimpse at a slot the moment they are said to be done.

        `checked` calls are looked at closely, where the platform is emulated.
        """
        request = MakeCheckedCalls(*call_columns(calls), poison=poison, closely=checked, poison_heap=poison_heap)
        before = TurnTimes.now(self.runner)
        began = _clock()
        answer = self.runner.ask(request, self._seconds)
        wall = _clock() - began
        sample = self._sample_slot(look_at)
        after = TurnTimes.now(self.runner)
        try:
            block = _read_block(answer, wall, len(calls), sample)
            lost, taken = before.lost_ns(after, wall), before.taken_ns(after, wall)
            return replace(block, lost_ns=lost, taken_ns=taken, used_ns=before.used_ns(after))
        except NONSENSE as error:
            raise self._nonsense_error(error) from None

    def observe(
        self, number: int, seeds: tuple[int, int], renew: Callable[[], None] | None = None
    ) -> tuple[WatchedCall, RecordedCall]:
        """What a call on a set shows when it is watched, and another when it is recorded.

        `renew` changes the set between the two, so that nothing of the first is of use for the second.
        """
        watched = self.runner.ask(WatchCall(number, seeds[0]), self._seconds)
        if renew is not None:
            renew()
        return watched, self.runner.ask(RecordCall(number, seeds[1]), self._seconds)

    def _nonsense_error(self, error: Exception) -> RunnerLost:
        lost = RunnerLost("protocol", f"a reply that makes no sense ({type(error).__name__})")
        lost.runner = self.runner
        return lost

    def _sample_slot(self, slot: int) -> SlotSample | None:
        tensors = [tensor for tensor in self.slots[slot] if tensor.numel()]
        if not tensors:
            return None
        # Not torch's dice: another thread may have seeded them, and is about to draw.
        places = tuple(
            torch.tensor([_dice.randrange(tensor.numel()) for _ in range(_PROBES)], device=tensor.device)
            for tensor in tensors
        )
        return SlotSample(slot, places, tuple(map(torch.take, tensors, places)))

    def sample_is_settled(self, block: TimedBlock) -> bool:
        """Whether the glimpsed elements are still what they were: nothing wrote to the slot afterwards."""
        if block.sample is None:
            return True
        tensors = [tensor for tensor in self.slots[block.sample.slot] if tensor.numel()]
        now = map(torch.take, tensors, block.sample.places)
        pairs = zip(now, block.sample.values, strict=True)
        return all(torch.equal(one.view(torch.uint8), two.view(torch.uint8)) for one, two in pairs)


def _read_block(answer: CheckedOutputs, wall: int, count: int, sample: SlotSample | None) -> TimedBlock:
    described = [bounded_output(item) for item in answer.described]
    if len(answer.times_ns) != count or len(answer.which) != count:
        raise ValueError("not one answer for each call")
    if not all(0 <= item < 1 << 60 for item in answer.times_ns):
        raise ValueError("a time that is none")
    outputs = [described[index] for index in answer.which]
    return TimedBlock(answer.times_ns, wall, outputs, answer.reused, answer.shared, sample)


def bounded_output(output: SlotOutput) -> SlotOutput:
    """What a runner says of an output, its names no longer than any that are meant."""
    return SlotOutput(
        output.tree,
        tuple(leaf._replace(kind=leaf.kind[:_LONGEST_KIND], device=leaf.device[:40]) for leaf in output.leaves),
    )
