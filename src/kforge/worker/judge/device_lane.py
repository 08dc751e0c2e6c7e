"""One side of a measurement on a CUDA device, on the judge's clock alone.

The runner launches its calls behind a gate and is stopped. Only then does the judge write what they read, into memory
that no other runner maps; it opens the gate, waits for the end, and reads outputs where they lie, all on a stream of
its own, whose events are the measure. A program that waits for the device in its calls cannot be launched ahead: the
judge's clock then runs from the moment it is asked until its outputs are read.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any

import torch

from kforge.worker.arena import named_dtype
from kforge.worker.device_memory import DONE_OFFSET, WORDS_BYTES, DeviceArena
from kforge.worker.judge.compare import same_bits
from kforge.worker.judge.device_clock import DeviceClock, Turn, TurnLost
from kforge.worker.judge.device_outputs import CallOutputs, CopiedElements, DeviceOutputs, Shared
from kforge.worker.judge.held_lane import REUSED, Calls, HeldBlock, HeldLane, Part, Parts, shuffle_calls
from kforge.worker.judge.lane import NONSENSE, InputSets
from kforge.worker.judge.runner_handle import RunnerHandle, RunnerLost
from kforge.worker.judge.scheduler_waits import own_wait_ns
from kforge.worker.protocol.calls import (
    ForgetInputs,
    MakeTimedCalls,
    MapSlots,
    ShareMemory,
    TimedOutputs,
    call_columns,
)
from kforge.worker.protocol.records import HeldOutput, OutputLeaf, SlotOutput

_PATIENCE_SECONDS = 0.2
_TRIES = 2
"""How often calls must fail to return before they are tried with fewer of them: a processor may be held up for once."""
_MOST_MAPPINGS = 20
_MOST_BLOCKS = 20_000
"""Of memory that one runner may send."""
_clock = time.perf_counter_ns


class _NotAhead(Exception):
    """The calls did not return before the gate was opened."""


class _NotWatched(Exception):
    """Memory had to be mapped before the turn, and nobody watched meanwhile."""


class DeviceLane(HeldLane):
    """A lane with sets of its own, which hold what the judge's sets hold when it is their turn."""

    def __init__(
        self,
        runner: RunnerHandle,
        source: InputSets,
        expected: tuple[torch.Tensor, ...],
        seconds: float,
        copies: bool,
        watched: bool,
    ) -> None:
        """`copies`: the reference itself returns memory that is not its own. `watched`: the device is watched while
        calls are launched, for problems of which a part can be computed from what is known then.
        """
        self._source = source
        self._device = source.device
        self._watched = watched
        self._turns = self._failed = self._blocks = 0
        self.most_ahead = len(source.tensors)
        """How many calls it can launch ahead, as far as is known."""
        self.at_a_time = self.most_ahead
        """How many it is to launch ahead; none where the judge's clock runs from the moment they are asked for."""
        # Who is trusted may read the judge's own memory, where there is little of it.
        alone = runner.trusted and self._device.is_scarce(source.arena.size)
        super().__init__(runner, source if alone else source.twin(), expected, seconds, copies=False)
        runner.at_end.append(self._outputs.forget_memory)
        if copies:
            self._copy_from_now_on("")
            runner.stop()

    @property
    def _timer(self) -> DeviceClock:
        return self._device.clock

    def _connect(self, slots_bytes: int) -> None:
        self._slots_bytes = slots_bytes
        self.slots = [
            [torch.empty_strided(spec.shape, spec.stride, dtype=named_dtype(spec.dtype), device="meta") for spec in row]
            for row in self.specs
        ]
        self._outputs = DeviceOutputs(self._device, self.slots[0])
        words = self._device.arena(WORDS_BYTES)
        assert isinstance(words, DeviceArena)
        words.bytes.zero_()
        self._words = words
        self._device.synchronize()
        try:
            self.runner.ask(ForgetInputs(), self._seconds)
            request = replace(self._mapping(None), gate_bytes=words.size)
            self.runner.ask(request, self._seconds, (self.sets.arena.fd, words.fd))
        finally:
            words.close()
            if self.sets is not self._source:
                self.sets.arena.close()

    def bring_inputs(self) -> None:
        self._write_inputs(range(len(self.slots)))
        torch.cuda.current_stream(self._device.torch_device).synchronize()

    def warm_up(self, seeds: list[int | None]) -> None:
        self.bring_inputs()
        calls = [(number, number, seed) for number, seed in enumerate(seeds)]
        began = _clock()
        self.runner.ask(self._request(calls), self._seconds)
        self._wall_ns = _clock() - began

    # -- timed blocks ------------------------------------------------------------------------------------------------

    def time_calls(self, calls: Calls, parts: Parts) -> HeldBlock:
        while True:
            try:
                block = (
                    self._time_launched_ahead(calls, parts) if self.at_a_time else self._time_from_request(calls, parts)
                )
            except _NotAhead:
                self._failed += 1
                if self._failed == _TRIES:
                    # One that waits for the device never can; one that launches too much can with fewer calls.
                    self.at_a_time = self.most_ahead = max(1, self.at_a_time // 8) if self.at_a_time > 1 else 0
                    self._failed = 0
                continue
            self._failed = 0
            if self.copies:
                return block
            if self._overlaps(block):
                self._copy_from_now_on(REUSED)
            elif self._needs_copies(block):
                self._copy_from_now_on("its output lies where the judge cannot read it")
            else:
                return block

    def _needs_copies(self, block: HeldBlock) -> bool:
        """Whether an output of the right shape cannot be read as it lies."""
        return any(
            not self._outputs.can_read(given)
            or not all(map(self._is_plain, range(len(self.slots[0])), given.output.leaves))
            for given in map(CallOutputs, block.outputs, block.addresses, block.strides)
        )

    def _is_plain(self, number: int, leaf: OutputLeaf) -> bool:
        return leaf.delivered or leaf.shape != tuple(self.slots[0][number].shape)

    def launching_ns(self, rounds: int) -> float:
        """What a call takes, launching included, by the judge's clock from the moment they are asked for."""
        calls = shuffle_calls(len(self.slots), [None] * len(self.slots))
        return self._time_from_request(calls, {}, rounds=rounds).wall_ns / (len(calls) * rounds)

    def drop_outputs(self) -> None:
        """Have the runner hold nothing of earlier calls."""
        self.runner.ask(self._request([]), self._seconds)

    def call_once(self) -> None:
        """Make one call, of which nothing is asked."""
        self.runner.ask(self._request([(0, 0, None)]), self._seconds)

    def idle_ns(self, calls: Calls) -> int:
        if not self.at_a_time:
            return self._time_from_request(calls, {}, idle=True).wall_ns
        groups = -(-len(calls) // self.at_a_time)
        spent: list[int] = []
        while len(spent) < groups:
            with contextlib.suppress(_NotAhead):
                spent.append(self._run_watched_turn([], {}, first=True)[1].spent_ns)
        return sum(spent)

    def _time_launched_ahead(self, calls: Calls, parts: Parts) -> HeldBlock:
        """Time groups of calls, each group launched ahead."""
        given: dict[int, CallOutputs] = {}
        taken: list[CopiedElements] = []
        spent = before = after = 0
        for start in range(0, len(calls), self.at_a_time):
            outputs, turn, read = self._run_watched_turn(calls[start : start + self.at_a_time], parts, first=not start)
            given |= outputs
            taken.append(read)
            spent += turn.spent_ns
            before += turn.before_ns + (turn.early_ns if self._watched else 0)
            after += turn.after_ns
        return replace(_make_block(given, spent, 0, taken), before_ns=before, after_ns=after)

    def _run_watched_turn(
        self, calls: Calls, parts: Parts, first: bool
    ) -> tuple[dict[int, CallOutputs], Turn, CopiedElements]:
        for _ in range(_MOST_MAPPINGS):
            with contextlib.suppress(_NotWatched):
                return self._run_turn(calls, parts, first)
        raise self._nonsense_error(ValueError("memory that is never the same"))

    def _run_turn(self, calls: Calls, parts: Parts, first: bool) -> tuple[dict[int, CallOutputs], Turn, CopiedElements]:
        self._turns += 1
        turn, timer = self._turns, self._timer
        gate, done = self._words.address, self._words.address + DONE_OFFSET

        def open_gate() -> None:
            timer.end_watch()
            timer.set_word(gate, turn)

        request = self._request(calls, turn=turn, first=first)
        patience = min(self._seconds, _PATIENCE_SECONDS + 4e-9 * self._wall_ns)
        shared: list[Shared] = []
        watch = contextlib.ExitStack()
        try:
            if self._watched:
                # From now on until its turn nothing of it works on the device: all it launches waits behind the gate.
                watch.enter_context(timer.watch())
            try:
                answer, in_time = self.runner.ask_patiently(request, patience, open_gate, self._seconds)
                given = self._call_outputs(answer, calls)
                self._ask_for_memory(given, shared)
                self.runner.stop()
            finally:
                if shared:
                    watch.close()
                self._map(shared)
            if not in_time:
                raise _NotAhead
            if shared and self._watched:
                raise _NotWatched
            with torch.cuda.stream(timer.stream):
                taken = self._outputs.plan(given, parts)
            sets = [number for number, _, _ in calls]
            with timer.hold():
                timer.mark(0)
                self._write_inputs(sets)
                timer.flush()
                timer.mark(1)
                timer.open_gate(gate, turn)
                timer.wait_for(done, turn)
                timer.mark(2)
                taken.copy()
                timer.mark(3)
                watch.close()
            return given, self._finish_turn(done, turn), taken
        except BaseException:
            # Whatever it launched must not wait for ever.
            open_gate()
            raise
        finally:
            watch.close()

    def _finish_turn(self, done: int, turn: int) -> Turn:
        try:
            return self._timer.finish(self._seconds)
        except TurnLost:
            # With its process its kernels end too: what the stream waits for is then nobody's but the judge's.
            self.runner.kill()
            self._timer.rescue(done, turn)
            raise self._timeout_error() from None

    def _timeout_error(self) -> RunnerLost:
        lost = RunnerLost("timeout", f"the device was not done after {self._seconds:.0f} s")
        lost.runner = self.runner
        return lost

    def _time_from_request(self, calls: Calls, parts: Parts, idle: bool = False, rounds: int = 1) -> HeldBlock:
        """Time calls from the moment they are asked for until their outputs are read."""
        timer = self._timer
        self.runner.stop()
        sets = [number for number, _, _ in calls]
        before, own = self.runner.scheduler_times(), own_wait_ns()
        # From before inputs are there: nothing can be done with them that is not in the time.
        began = _clock()
        with torch.cuda.stream(timer.stream):
            timer.flush()
            self._write_inputs(sets)
        timer.stream.synchronize()
        shared: list[Shared] = []
        try:
            answer = self.runner.ask(replace(self._request(calls, idle=idle), rounds=rounds), self._seconds)
            self._wall_ns = _clock() - began
            given = self._call_outputs(answer, calls)
            self._ask_for_memory(given, shared)
            self.runner.stop()
        finally:
            self._map(shared)
        with torch.cuda.stream(timer.stream):
            taken = self._outputs.plan(given, parts)
            taken.copy()
        timer.stream.synchronize()
        wall = _clock() - began
        lost = before.lost_ns(self.runner.scheduler_times(), wall)
        lost = wall if lost is None else min(wall, lost + own_wait_ns() - own)
        return _make_block(given, wall, lost, [taken])

    def _request(self, calls: Calls, turn: int = 0, first: bool = True, idle: bool = False) -> MakeTimedCalls:
        copies = self.copies and not idle
        return MakeTimedCalls(*call_columns(calls), copies=copies, idle=idle, turn=turn, first=first)

    def _write_inputs(self, numbers: Any) -> None:
        """Copy the judge's sets, by a kernel: a copy engine would leave the device to whoever begins early."""
        for start, stop in _join_spans(sorted(self.sets.spans[number] for number in numbers)):
            source, target = (memory.bytes[start:stop].view(torch.int64) for memory in self._memories())
            torch.add(source, 0, out=target)

    def _memories(self) -> tuple[DeviceArena, DeviceArena]:
        source, target = self._source.arena, self.sets.arena
        assert isinstance(source, DeviceArena)
        assert isinstance(target, DeviceArena)
        return source, target

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _call_outputs(self, answer: TimedOutputs, calls: Calls) -> dict[int, CallOutputs]:
        slots = [slot for _, slot, _ in calls]
        try:
            block = self._read(answer, slots, 0, 0)
        except NONSENSE as error:
            raise self._nonsense_error(error) from None
        return dict(zip(sorted(slots), map(CallOutputs, block.outputs, block.addresses, block.strides), strict=True))

    def _read_output(self, output: HeldOutput) -> tuple[SlotOutput, list[tuple[int, ...]]]:
        read, strides = super()._read_output(output)
        if self.copies:
            return read, strides
        own = self._device.torch_device.type
        leaves = tuple(
            leaf if leaf.device.startswith(own) else leaf._replace(usual_layout=False, delivered=False)
            for leaf in read.leaves
        )
        return SlotOutput(read.tree, leaves), strides

    def _ask_for_memory(self, given: dict[int, CallOutputs], blocks: list[Shared]) -> None:
        """Add blocks that outputs lie in and that are not mapped here yet; what cannot be shared is left out."""
        if self.copies:
            return
        ranges = [(start, stop) for item in given.values() for _, start, stop in self._outputs.places(item)]
        request = ShareMemory([start for start, _ in ranges], [stop for _, stop in ranges])
        deadline = time.monotonic() + self._seconds
        more = True
        while more:
            left = max(0.001, deadline - time.monotonic())
            answer, descriptors = self.runner.ask_for_descriptors(request, left)
            new = [(0, 0, fd) for fd in descriptors]
            try:
                new = [(base, size, fd) for (base, size), fd in zip(answer.blocks, descriptors, strict=True)]
                more = answer.more
                if more and not new:
                    raise ValueError("more of nothing")
                if not all(any(start < base + size and base < stop for start, stop in ranges) for base, size, _ in new):
                    raise ValueError("memory that no output lies in")
            except NONSENSE as error:
                raise self._nonsense_error(error) from None
            finally:
                blocks += new
            self._blocks += len(new)
            if self._blocks > _MOST_BLOCKS:
                raise self._nonsense_error(ValueError("too many blocks of memory"))

    def _map(self, shared: list[Shared]) -> None:
        try:
            self._outputs.map(shared)
        except NONSENSE as error:
            raise self._nonsense_error(error) from None

    def take(self, block: HeldBlock, parts: Parts) -> None:
        """Nothing to do: outputs are read where they lie, and nothing of the program runs meanwhile."""

    def output(self, block: HeldBlock, slot: int, number: int) -> torch.Tensor:
        given = CallOutputs(block.outputs[slot], block.addresses[slot], block.strides[slot])
        return self._outputs.tensor(slot, number, given)

    def read(self, block: HeldBlock, slot: int, number: int, parts: list[Part]) -> torch.Tensor:
        expected = self.slots[slot][number]
        for taken in block.taken:
            rows: torch.Tensor | None = taken.rows((slot, number), parts, expected.dtype)
            if rows is not None:
                return rows if len(parts) > 1 else rows.as_strided(expected.shape, expected.stride())
        return super().read(block, slot, number, parts)

    def outputs_are_apart(self, block: HeldBlock) -> bool:
        """Whether no two outputs of a block lie in the same memory; the block is not of use afterwards."""
        given = map(CallOutputs, block.outputs, block.addresses, block.strides)
        return self.copies or self._outputs.are_apart(list(given))

    def is_settled(self, block: HeldBlock) -> bool:
        return all(taken.is_settled() for taken in block.taken)

    def has_changed_inputs(self, slot: int) -> bool:
        return not all(map(same_bits, self.sets.tensors[slot], self._source.tensors[slot]))

    def release(self, seconds: float) -> None:
        super().release(seconds)
        self._outputs.forget_memory()

    def _copy_from_now_on(self, reason: str) -> None:
        """Have the runner copy what it returns to memory of the judge's, in its own time."""
        arena = self._device.arena(self._slots_bytes)
        try:
            assert isinstance(arena, DeviceArena)
            arena.poison()
            delivered = [[arena.tensor(spec) for spec in row] for row in self.specs]
            self._device.synchronize()
            self.runner.ask(MapSlots(arena.size, tuple(map(tuple, self.specs))), self._seconds, (arena.fd,))
        finally:
            arena.close()
        self._outputs.delivered = delivered
        self.copies, self.copied_because = True, reason


def _make_block(given: dict[int, CallOutputs], spent_ns: int, lost_ns: int, taken: list[CopiedElements]) -> HeldBlock:
    ordered = [given[slot] for slot in sorted(given)]
    return HeldBlock(
        spent_ns,
        lost_ns,
        [item.output for item in ordered],
        [item.addresses for item in ordered],
        [item.strides for item in ordered],
        taken=taken,
    )


def _join_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans with neighbours joined into one."""
    joined: list[tuple[int, int]] = []
    for start, stop in spans:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined
