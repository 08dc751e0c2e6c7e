"""One side of a measurement on a CUDA device, on the judge's clock alone.

The runner launches its calls behind a gate and is stopped. Only then does the judge write what they read, into memory
that no other runner maps; it opens the gate, waits for the end, and reads outputs where they lie, all on a stream of
its own, whose events are the measure. A program that waits for the device in its calls cannot be launched ahead: the
judge's clock then runs from the moment it is asked until its outputs are read.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from kforge.worker.arena import named_dtype
from kforge.worker.cuda_driver import NotShareable
from kforge.worker.device_memory import DONE_OFFSET, WORDS_BYTES, DeviceArena
from kforge.worker.judge.compare import same_bits
from kforge.worker.judge.device_clock import DeviceClock, Turn, TurnLost
from kforge.worker.judge.held_lane import Calls, HeldBlock, HeldLane, Part, Parts, shuffled
from kforge.worker.judge.lane import NONSENSE, InputSets, Output
from kforge.worker.judge.mirrored_memory import MirroredMemory
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.judge.scheduler_waits import SchedulerTimes, own_wait_ns

_PATIENCE_SECONDS = 0.2
_MOST_ANSWERS = 1000
_COPIED_BYTES = 1 << 20
"""An output up to this size is copied whole; a larger one that is asked for whole is read where it lies."""
_clock = time.perf_counter_ns


class _Given(NamedTuple):
    """What one call gave."""

    output: Output
    addresses: list[int]
    strides: list[tuple[int, ...]]


_Rows = dict[tuple[int, int], torch.Tensor]


class _NotAhead(Exception):
    """The calls did not return before the gate was opened."""


class DeviceLane(HeldLane):
    """Sets of its own, which hold what the judge's sets hold when it is their turn."""

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
        self._site = source.site
        self._mirror = MirroredMemory(self._site.number)
        self._watched = watched
        self._turns = 0
        self._delivered: list[list[torch.Tensor]] = []
        self.most_ahead = len(source.tensors)
        """How many calls it can launch ahead, as far as is known."""
        self.at_a_time = self.most_ahead
        """How many it is to launch ahead; none where the judge's clock runs from the moment they are asked for."""
        super().__init__(runner, source.twin(), expected, seconds, copies=False)
        if copies:
            self._copy_from_now_on()
            runner.stop()

    @property
    def _timer(self) -> DeviceClock:
        return self._site.clock

    def _connect(self, slots_bytes: int) -> None:
        self._slots_bytes = slots_bytes
        self.slots = [
            [torch.empty_strided(spec.shape, spec.stride, dtype=named_dtype(spec.dtype), device="meta") for spec in row]
            for row in self.specs
        ]
        words = self._site.arena(WORDS_BYTES)
        assert isinstance(words, DeviceArena)
        words.bytes.zero_()
        self._words = words
        self._site.synchronize()
        try:
            self.runner.ask({"op": "forget"}, self._seconds)
            request = {**self._mapping(None), "words": words.size}
            self.runner.ask(request, self._seconds, (self.sets.arena.fd, words.fd))
        finally:
            words.close()
            self.sets.arena.close()

    def bring_inputs(self) -> None:
        self._write_inputs(range(len(self.slots)))
        torch.cuda.current_stream(self._site.device).synchronize()

    def warm_up(self, seeds: list[int | None]) -> None:
        self.bring_inputs()
        calls = [(number, number, seed) for number, seed in enumerate(seeds)]
        began = _clock()
        self.runner.ask(self._request(calls), self._seconds)
        self._wall_ns = _clock() - began

    # -- timed blocks ------------------------------------------------------------------------------------------------

    def timed(self, calls: Calls, parts: Parts) -> HeldBlock:
        while True:
            try:
                block = self._launched(calls, parts) if self.at_a_time else self._asked(calls, parts)
            except _NotAhead:
                # One that waits for the device never can; one that launches too much can with fewer calls.
                self.at_a_time = self.most_ahead = max(1, self.at_a_time // 8) if self.at_a_time > 1 else 0
                continue
            if self.copies or not (self._overlaps(block) or self._out_of_reach(block)):
                return block
            # It uses its memory again, or has it from elsewhere: what it returns is copied, at its own cost.
            self._copy_from_now_on()

    def launching_ns(self, rounds: int) -> float:
        """What a call takes, launching included, by the judge's clock from the moment they are asked for."""
        calls = shuffled(len(self.slots), [None] * len(self.slots))
        return self._asked(calls, {}, rounds=rounds).wall_ns / (len(calls) * rounds)

    def drop_outputs(self) -> None:
        """Have the runner hold nothing of earlier calls."""
        self.runner.ask(self._request([]), self._seconds)

    def call_once(self) -> None:
        """One call, of which nothing is asked."""
        self.runner.ask(self._request([(0, 0, None)]), self._seconds)

    def idle_ns(self, calls: Calls) -> int:
        if not self.at_a_time:
            return self._asked(calls, {}, idle=True).wall_ns
        groups = -(-len(calls) // self.at_a_time)
        return sum(self._turn([], {}, first=True)[1].spent_ns for _ in range(groups))

    def _launched(self, calls: Calls, parts: Parts) -> HeldBlock:
        """Groups of calls, each launched ahead."""
        given: dict[int, _Given] = {}
        rows: _Rows = {}
        spent = around = 0
        for start in range(0, len(calls), self.at_a_time):
            found, turn, read = self._turn(calls[start : start + self.at_a_time], parts, first=not start)
            given |= found
            rows |= read
            spent += turn.spent_ns
            around += turn.before_ns + turn.after_ns + (turn.early_ns if self._watched else 0)
        return _block(given, spent, 0, around, rows)

    def _turn(self, calls: Calls, parts: Parts, first: bool) -> tuple[dict[int, _Given], Turn, _Rows]:
        self._turns += 1
        number, timer = self._turns, self._timer
        gate, done = self._words.address, self._words.address + DONE_OFFSET

        def open_gate() -> None:
            timer.set_word(gate, number)

        request = self._request(calls, turn=number, first=first)
        patience = _PATIENCE_SECONDS + 4e-9 * self._wall_ns
        try:
            # Until it is stopped, nothing of it works on the device: all it launches waits behind the gate.
            with timer.watched() if self._watched else contextlib.nullcontext():
                reply, in_time = self.runner.ask_patiently(request, patience, open_gate, self._seconds)
                given = self._given(reply, calls)
                blocks = self._shared(given)
                self.runner.stop()
            self._map(blocks)
            if not in_time:
                raise _NotAhead
            targets = self._targets(given, parts)
        except (ProgramError, RunnerLost):
            open_gate()
            raise
        sets = [number for number, _, _ in calls]

        def launch() -> None:
            self._write_inputs(sets)
            self._read_rows(given, targets, parts)

        timer.rehearse({"inputs", *(target.dtype for target in targets.values())}, launch)
        with timer.held():
            timer.mark(0)
            self._write_inputs(sets)
            timer.flush()
            timer.mark(1)
            timer.open_gate(gate, number)
            timer.wait_for(done, number)
            timer.mark(2)
            self._read_rows(given, targets, parts)
            timer.mark(3)
        try:
            turn = timer.finish(self._seconds, done, number)
        except TurnLost:
            lost = RunnerLost("timeout", f"the device was not done after {self._seconds:.0f} s")
            lost.runner = self.runner
            raise lost from None
        return given, turn, targets

    def _asked(self, calls: Calls, parts: Parts, idle: bool = False, rounds: int = 1) -> HeldBlock:
        """Calls whose time runs from the moment they are asked for until their outputs are read."""
        timer = self._timer
        self.runner.stop()
        sets = [number for number, _, _ in calls]
        timer.rehearse({"inputs"}, lambda: self._write_inputs(sets))
        with timer.held():
            timer.mark(0)
            self._write_inputs(sets)
            timer.flush()
            for moment in (1, 2, 3):
                timer.mark(moment)
        around = timer.finish(self._seconds, self._words.address, 0).before_ns
        before, own = SchedulerTimes.of(self.runner), own_wait_ns()
        began = _clock()
        reply = self.runner.ask({**self._request(calls, idle=idle), "rounds": rounds}, self._seconds)
        self._wall_ns = _clock() - began
        given = self._given(reply, calls)
        blocks = self._shared(given)
        self.runner.stop()
        self._map(blocks)
        targets = self._targets(given, parts)
        with torch.cuda.stream(timer.stream):
            self._read_rows(given, targets, parts)
        timer.stream.synchronize()
        wall = _clock() - began
        lost = before.lost_ns(SchedulerTimes.of(self.runner), wall)
        lost = wall if lost is None else min(wall, lost + own_wait_ns() - own)
        return _block(given, wall, lost, around, targets)

    def _request(self, calls: Calls, turn: int = 0, first: bool = True, idle: bool = False) -> dict[str, Any]:
        return {
            "op": "timed",
            "calls": calls,
            "copies": self.copies and not idle,
            "idle": idle,
            "rounds": 1,
            "turn": turn,
            "first": first,
        }

    def _write_inputs(self, numbers: Any) -> None:
        """What the judge's sets hold, by a kernel: a copy engine would leave the device to whoever begins early."""
        for start, stop in _joined(sorted(self.sets.spans[number] for number in numbers)):
            source, target = (memory.bytes[start:stop].view(torch.int64) for memory in self._memories())
            torch.add(source, 0, out=target)

    def _memories(self) -> tuple[DeviceArena, DeviceArena]:
        source, target = self._source.arena, self.sets.arena
        assert isinstance(source, DeviceArena)
        assert isinstance(target, DeviceArena)
        return source, target

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _given(self, reply: dict[str, Any], calls: Calls) -> dict[int, _Given]:
        slots = [slot for _, slot, _ in calls]
        try:
            block = self._read(reply, slots, 0, 0)
        except NONSENSE as error:
            raise self._nonsense(error) from None
        found = map(_Given, block.outputs, block.addresses, block.strides)
        return dict(zip(sorted(slots), found, strict=True))

    def _read_output(self, item: Any) -> tuple[Output, list[tuple[int, ...]]]:
        output, strides = super()._read_output(item)
        leaves = tuple(
            leaf if leaf.device.startswith("cuda") else replace(leaf, usual_layout=False, delivered=False)
            for leaf in output.leaves
        )
        return Output(output.tree, leaves), strides

    def _places(self, given: _Given) -> Iterator[tuple[int, int, int]]:
        """Number, first and last address of every output that can be read as it lies."""
        for number, (leaf, address) in enumerate(zip(given.output.leaves, given.addresses, strict=True)):
            if leaf.delivered and self.slots[0][number].numel():
                expected = self.slots[0][number]
                yield number, address, address + expected.numel() * expected.element_size()

    def _shared(self, given: dict[int, _Given]) -> list[tuple[int, int, int]]:
        """First address, size and descriptor of memory that outputs lie in and that is not mapped here yet.

        What the runner has not got from the driver in a form that can be shared is left out.
        """
        found: list[tuple[int, int, int]] = []
        if self.copies:
            return found
        ranges = [(start, stop) for item in given.values() for _, start, stop in self._places(item)]
        for _ in range(_MOST_ANSWERS):
            reply, descriptors = self.runner.ask_for_descriptors({"op": "export", "ranges": ranges}, self._seconds)
            try:
                found += [
                    (int(base), int(size), fd) for (base, size), fd in zip(reply["blocks"], descriptors, strict=True)
                ]
                more = reply["more"] is True
            except NONSENSE as error:
                raise self._nonsense(error) from None
            if not more:
                break
        return found

    def _map(self, blocks: list[tuple[int, int, int]]) -> None:
        try:
            for block in blocks:
                with contextlib.suppress(NotShareable):
                    self._mirror.add(*block)
        except NONSENSE as error:
            raise self._nonsense(error) from None
        finally:
            for _, _, fd in blocks:
                os.close(fd)

    def _out_of_reach(self, block: HeldBlock) -> bool:
        """Whether an output lies where the judge cannot read it."""
        for given in map(_Given, block.outputs, block.addresses, block.strides):
            if not all(self._reads(*place) for place in self._places(given)):
                return True
        return False

    def _reads(self, number: int, start: int, stop: int) -> bool:
        return start % self.slots[0][number].element_size() == 0 and self._mirror.covers(start, stop)

    def _flat(self, slot: int, number: int, address: int) -> torch.Tensor:
        """The elements of an output, in memory order."""
        expected = self.slots[slot][number]
        if self.copies:
            return self._delivered[slot][number].as_strided((expected.numel(),), (1,))
        size = expected.numel() * expected.element_size()
        return self._mirror.bytes(address, address + size).view(expected.dtype)

    def _targets(self, given: dict[int, _Given], parts: Parts) -> _Rows:
        """Room for what is to be copied the moment a turn is done."""
        found: _Rows = {}
        with torch.cuda.stream(self._timer.stream):
            for slot, item in given.items():
                for number, start, stop in self._places(item):
                    wanted = parts.get((slot, number), [])
                    usual = self.copies or item.output.leaves[number].usual_layout
                    if not usual or not (self.copies or self._reads(number, start, stop)):
                        continue
                    if not wanted or (len(wanted) == 1 and stop - start > _COPIED_BYTES):
                        continue
                    shape, dtype = (len(wanted), wanted[0][1]), self.slots[slot][number].dtype
                    found[slot, number] = torch.empty(shape, dtype=dtype, device=self._site.device)
        return found

    def _read_rows(self, given: dict[int, _Given], targets: _Rows, parts: Parts) -> None:
        by_dtype: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for (slot, number), target in targets.items():
            flat = self._flat(slot, number, given[slot].addresses[number])
            into, out_of = by_dtype.setdefault(target.dtype, ([], []))
            for row, (first, count) in zip(target, parts[slot, number], strict=True):
                into.append(row)
                out_of.append(flat[first : first + count])
        for into, out_of in by_dtype.values():
            torch._foreach_copy_(into, out_of)

    def take(self, block: HeldBlock, parts: Parts) -> None:
        """Nothing to do: outputs are read where they lie, and nothing of the program runs meanwhile."""

    def output(self, block: HeldBlock, slot: int, number: int) -> torch.Tensor:
        expected = self.slots[slot][number]
        if not expected.numel():
            return torch.empty(expected.shape, dtype=expected.dtype, device=self._site.device)
        if self.copies:
            return self._delivered[slot][number]
        usual = block.outputs[slot].leaves[number].usual_layout
        strides = expected.stride() if usual else block.strides[slot][number]
        return self._flat(slot, number, block.addresses[slot][number]).as_strided(expected.shape, strides)

    def read(self, block: HeldBlock, slot: int, number: int, parts: list[Part]) -> torch.Tensor:
        rows = block.rows.get((slot, number))
        if rows is None:
            return super().read(block, slot, number, parts)
        expected = self.slots[slot][number]
        return rows if len(parts) > 1 else rows.as_strided(expected.shape, expected.stride())

    def changed_inputs(self, slot: int) -> bool:
        return not all(map(same_bits, self.sets.tensors[slot], self._source.tensors[slot]))

    def _copy_from_now_on(self) -> None:
        """Have the runner copy what it returns to memory of the judge's, in its own time."""
        arena = self._site.arena(self._slots_bytes)
        try:
            assert isinstance(arena, DeviceArena)
            arena.poison()
            self._delivered = [[arena.tensor(spec) for spec in row] for row in self.specs]
            self._site.synchronize()
            slots = [[spec.to_json() for spec in row] for row in self.specs]
            self.runner.ask({"op": "slots", "size": arena.size, "slots": slots}, self._seconds, (arena.fd,))
        finally:
            arena.close()
        self.copies = True


def _block(given: dict[int, _Given], spent_ns: int, lost_ns: int, around_ns: int, rows: _Rows) -> HeldBlock:
    found = [given[slot] for slot in sorted(given)]
    return HeldBlock(
        spent_ns,
        lost_ns,
        [item.output for item in found],
        [item.addresses for item in found],
        [item.strides for item in found],
        around_ns,
        rows,
    )


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours as one."""
    found: list[tuple[int, int]] = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found
