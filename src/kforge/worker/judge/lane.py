"""One side of a measurement: a runner with input sets and output slots in memory the judge can see."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.arena import Arena, Layout
from kforge.worker.judge.runner_handle import RunnerHandle, RunnerLost

_clock = time.perf_counter_ns


@dataclass(frozen=True)
class Output:
    """What came back from one call: structure, and a description of each tensor."""

    tree: Any
    leaves: tuple[tuple[str, str, tuple[int, ...], str, bool], ...]
    """(type, dtype, shape, device, delivered)."""


@dataclass(frozen=True)
class Block:
    """What a row of calls gave."""

    ns: list[int]
    """Claimed time of each call."""
    wall_ns: int
    """The judge's own clock around the whole block."""
    outputs: list[Output]
    reused: bool
    """Whether the same storage was returned twice."""


class Lane:
    """Maps sets and slots into a runner; `call` runs a block. The judge's view of both stays readable here."""

    def __init__(
        self, runner: RunnerHandle, sets: list[list[Any]], expected: tuple[torch.Tensor, ...], seconds: float
    ) -> None:
        self.runner = runner
        self._seconds = seconds
        layout = Layout()
        packed = [trees.pack(arguments) for arguments in sets]
        set_specs = [[layout.place(tensor) for tensor in tensors] for _, tensors in packed]
        slot_specs = [[layout.place(tensor) for tensor in expected] for _ in sets]
        arena = Arena.create(layout.size)
        self.inputs = [[arena.tensor(spec) for spec in specs] for specs in set_specs]
        """Set -> its tensors, as the runner sees them."""
        self.slots = [[arena.tensor(spec) for spec in specs] for specs in slot_specs]
        """Slot -> the tensors delivered there."""
        for places, (_, tensors) in zip(self.inputs, packed, strict=True):
            for place, tensor in zip(places, tensors, strict=True):
                place.copy_(tensor)
        request = {
            "op": "inputs",
            "size": arena.size,
            "sets": [
                [tree, [spec.to_json() for spec in specs]]
                for (tree, _), specs in zip(packed, set_specs, strict=True)
            ],
            "slots": [[spec.to_json() for spec in specs] for specs in slot_specs],
        }
        try:
            runner.ask({"op": "forget"}, seconds)
            runner.ask(request, seconds, (arena.fd,))
        finally:
            arena.close()

    def call(self, calls: list[tuple[int, int, int | None]], poison: bool = False) -> Block:
        """Run (set, slot, seed) calls in a row."""
        request = {"op": "block", "calls": calls, "poison": poison}
        began = _clock()
        reply = self.runner.ask(request, self._seconds)
        wall = _clock() - began
        try:
            return _read_block(reply, wall, len(calls))
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise RunnerLost("protocol", f"a reply that makes no sense ({type(error).__name__})") from None


def _read_block(reply: dict[str, Any], wall: int, count: int) -> Block:
    times = reply["ns"]
    which = reply["which"]
    described = [_read_output(item) for item in reply["described"]]
    if len(times) != count or len(which) != count:
        raise ValueError("not one answer for each call")
    if not all(isinstance(item, int) and 0 <= item < 1 << 60 for item in times):
        raise ValueError("a time that is none")
    return Block(list(times), wall, [described[index] for index in which], bool(reply["reused"]))


def _read_output(item: Any) -> Output:
    tree, leaves = item
    read = tuple(
        (str(kind)[:200], str(dtype), tuple(int(length) for length in shape), str(device)[:40], delivered is True)
        for kind, dtype, shape, device, delivered in leaves
    )
    return Output(tree, read)
