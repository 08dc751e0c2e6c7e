"""Inputs for timed calls: sets that every side reads or gets copies of, with fresh content for each pair of blocks."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.arena import ArenaLayout
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge import distributions, interleaved_timer
from kforge.worker.judge.device_lane import DeviceLane
from kforge.worker.judge.held_lane import HeldLane
from kforge.worker.judge.lane import InputSets, Lane
from kforge.worker.judge.own_processors import usable_processors
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.runner_handle import RunnerHandle

_DRAWING_SECONDS = 0.015
"""How long the inputs of a block may take to be drawn."""
_TRIALS = 3
_EDGE_EVERY = 4
_FEW = 4096
"""Elements below which a tensor is always drawn anew."""


class TimedInputs:
    """The timed inputs of one problem. What a set holds can always be made again from what only the judge knows."""

    def __init__(self, cases: ProblemCases, is_further: bool = False) -> None:
        """`is_further`: of a workload behind the first."""
        self._cases = cases
        self._is_further = is_further
        self._sets: InputSets | None = None
        self._patchworks: list[distributions.Patchwork] = []
        """One for each tensor of a set, where drawing anew takes too long."""
        self._trees: list[Any] = []
        self._contents: list[int] = []
        self._can_scale = False
        self._only_natural = False
        self._without_special = False
        self._distributions: tuple[str, ...] = ("natural",)
        self._edges: dict[int, int | None] = {}
        """Set -> the entry of its inputs that reaches an edge of the operation."""
        self._refreshes = 0
        self._drawing = threading.RLock()

    def sets(self) -> InputSets:
        """Input sets to rotate over in timed blocks, drawn once; every side reads them from the same memory."""
        with self._drawing:
            return self._drawn_sets()

    def _drawn_sets(self) -> InputSets:
        if self._sets is None:
            device = self._cases.device
            count = interleaved_timer.count_sets(
                self._cases.call_seconds,
                self._cases.set_bytes,
                device.rotation_bytes,
                device.has_own_memory,
                self._is_further,
            )
            count = 1 if self._cases.large else count
            began = time.perf_counter()
            drawn = [self._cases.reference.inputs(self._cases.derive("timing", index)) for index in range(count)]
            drawing = time.perf_counter() - began
            self._trees = [trees.pack(arguments)[0] for arguments in drawn]
            self._sets = InputSets(drawn, device, read_only=True, ahead_ns=self._cases.ahead_ns)
            # The first contents have numbers of their own; those of refreshed ones begin at 1.
            self._contents = [-index for index in range(count)]
            tensors = [trees.pack(arguments)[1] for arguments in drawn]
            self._can_scale = count > 1 and self._cases.floating and self._try_scaling()
            if self._can_scale and _have_same_layout(tensors) and _must_be_made(tensors[0], drawing):
                self._patchworks = [distributions.Patchwork(_dense_copy(tensor)) for tensor in tensors[0]]
                if not self._try_scaling():
                    self._patchworks = []
        return self._sets

    def unchanged_sets(self) -> InputSets:
        """The sets with what the problem draws in them, whatever timed blocks made of them since."""
        with self._drawing:
            sets = self.sets()
            for index, targets in enumerate(sets.tensors):
                if self._contents[index] > 0:
                    drawn = trees.pack(self._cases.reference.inputs(self._cases.derive("timing", index)))[1]
                    for value, target in zip(drawn, targets, strict=True):
                        target.copy_(value)
                    self._contents[index], self._edges[index] = -index, None
            self._cases.device.synchronize()
            return sets

    def watched_sets(self) -> InputSets:
        """Inputs for watched calls: a second set unlike the first, where there is room for it."""
        device = self._cases.device
        room = device.rotation_bytes if device.has_own_memory else device.large_bytes
        count = 1 if self._cases.large or self._cases.set_bytes > room else 2
        return InputSets([self.watched_arguments(index) for index in range(count)], device)

    def watched_arguments(self, index: int) -> list[Any]:
        """What a watched call is given, drawn again each time it is asked for."""
        return self._cases.reference.inputs(self._cases.derive("watched", index))

    def lane(self, runner: RunnerHandle, seconds: float) -> Lane:
        """A lane over the timed inputs, of the kind that this device is measured with."""
        cases = self._cases
        if cases.device.supports_ipc:
            # What is drawn by a seed could be drawn while the gate is closed; of inputs nothing is known then.
            watched = cases.stochastic
            return DeviceLane(runner, self.sets(), cases.outputs, seconds, copies=cases.shares_memory, watched=watched)
        if cases.device.has_own_memory:
            return Lane(runner, self.sets(), cases.outputs, seconds)
        return HeldLane(runner, self.sets(), cases.outputs, seconds, copies=cases.shares_memory)

    def seeds(self) -> list[int | None]:
        """Per set: what to reseed torch with; another one for each content, so that no random number comes again."""
        self.sets()
        return [self._cases.derive("call", number) if self._cases.stochastic else None for number in self._contents]

    def refresh(self) -> None:
        """Write fresh content to every set."""
        # Checked calls may have shown since that the problem takes more of them.
        natural = self._cases.large or self._only_natural
        self._distributions = ("natural",) if natural else self._cases.timed_distributions()
        sets = self.sets().tensors
        for index in range(len(sets)):
            self._refreshes += 1
            self._contents[index] = self._refreshes
        if self._patchworks and not self._cases.device.has_own_memory:
            # Nobody else works now: each processor writes some of them.
            with ThreadPoolExecutor(usable_processors(), "refresh") as threads:
                list(threads.map(self._write_content, range(len(sets)), sets))
        else:
            for index, targets in enumerate(sets):
                self._write_content(index, targets)
        self._cases.device.synchronize()

    def leave_out_special(self, left_out: bool) -> None:
        """Have the edges of what is written from now on be without NaN and infinities, or with them again.

        Without them is for a program that carries NaN to other places: what it gives there could not be verified.
        """
        if self._without_special != left_out:
            self._without_special = left_out
            self.refresh()

    def content(self, index: int) -> list[torch.Tensor]:
        """What a set was given last, made again from what only the judge holds."""
        device = self._cases.device.torch_device
        targets = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device) for t in self.sets().tensors[index]
        ]
        self._write_content(index, targets)
        return targets

    def arguments(self, index: int, tensors: list[torch.Tensor]) -> list[Any]:
        """A set's arguments with these tensors in their places."""
        return list(trees.unpack(self._trees[index], tensors))

    def distribution(self, index: int) -> str:
        """The distribution of what a set was given last: any that checked calls have."""
        if self._contents[index] <= 0:
            return "natural"
        if self._edges.get(index) is not None:
            return distributions.EXTREMES
        return self._plain_distribution(index)

    def edge(self, index: int) -> int | None:
        """Which entry of a set's inputs reaches an edge of the operation; None where none does."""
        return self._edges.get(index)

    def _plain_distribution(self, index: int) -> str:
        # An edge beside another change may be more than arithmetic can take: small values, far away.
        if self._contents[index] <= 0 or self._wants_edge(index):
            return "natural"
        names = self._distributions
        return names[self._cases.derive("distribution", self._contents[index]) % len(names)]

    def _write_content(self, index: int, targets: list[torch.Tensor]) -> None:
        name, seed = self._plain_distribution(index), self._cases.derive("fresh", self._contents[index])
        if self._patchworks:
            for number, (patchwork, target) in enumerate(zip(self._patchworks, targets, strict=True)):
                patchwork.write(target, self._cases.derive(f"fresh {number}", self._contents[index]), name)
            self._reach_an_edge(index, targets)
            return
        drawn = self._cases.apply_distribution(name, self._cases.reference.inputs(seed), seed)
        for number, (value, target) in enumerate(zip(trees.pack(drawn)[1], targets, strict=True)):
            target.copy_(value)
            if self._can_scale and target.is_floating_point() and target.numel():
                distributions.scale(target, self._cases.derive(f"fresh {number}", seed))
        self._reach_an_edge(index, targets)

    def _reach_an_edge(self, index: int, targets: list[torch.Tensor]) -> None:
        """Make one entry, now and then, as extreme as those of a checked call, so that care is not left to those."""
        edges = self._cases.edges()
        self._edges[index] = None
        if edges is not None and self._wants_edge(index):
            seed = self._cases.derive("edge kind", self._contents[index])
            self._edges[index] = edges.mark(targets, seed, special=not self._without_special)

    def _wants_edge(self, index: int) -> bool:
        number = self._contents[index]
        allowed = number > 0 and not self._only_natural and not self._cases.large and self._cases.edges() is not None
        return allowed and self._cases.derive("edge", number) % _EDGE_EVERY == 0

    def _try_scaling(self) -> bool:
        """Whether values of other sizes, or put together from patches, are still inputs this problem can take."""
        self._can_scale = True
        try:
            usual = self._finite_shares(trees.unpack(self._trees[0], self.sets().tensors[0]))
            for trial in range(_TRIALS):
                self._contents[0] = -len(self._contents) - trial
                shares = self._finite_shares(self.arguments(0, self.content(0)))
                if any(one < two for one, two in zip(shares, usual, strict=True)):
                    return False
        except (torch.OutOfMemoryError, DeviceMemoryFull):
            self._sets = None
            raise
        except Exception:
            return False
        finally:
            self._contents[0] = 0
        return True

    def _finite_shares(self, arguments: list[Any]) -> list[float]:
        output = self._cases.reference.run(arguments, self._cases.timed_state, 0)
        return [float(torch.isfinite(tensor).double().mean()) for tensor in trees.pack(output)[1] if tensor.numel()]

    def keep_to_what_is_given(self) -> None:
        """Use the problem's own draws and nothing else from now on: the reference failed on other inputs."""
        with self._drawing:
            self._can_scale, self._patchworks, self._only_natural = False, [], True
            self.refresh()

    def count(self) -> int:
        """How many sets there are, or one if none were drawn yet."""
        return max(1, len(self._contents))

    @property
    def working_bytes(self) -> int:
        """Memory that the timed calls go round in: every input set with its outputs, and the parameters."""
        held = sum(value.numel() * value.element_size() for value in self._cases.timed_state.values())
        return self.count() * self._cases.set_bytes + held

    def close(self) -> None:
        if self._sets is not None:
            self._sets.close()


def _must_be_made(tensors: list[torch.Tensor], drawing: float) -> bool:
    """Whether drawing all sets anew for every block takes too long, and making them does not rob them of sense.

    Integers are indices, orders, permutations; of few elements nothing new can be made.
    """
    plain = all(tensor.is_floating_point() and tensor.numel() >= _FEW for tensor in tensors if tensor.numel())
    return plain and drawing > _DRAWING_SECONDS


def _have_same_layout(sets: list[list[torch.Tensor]]) -> bool:
    """Whether every set has tensors of the same shapes and strides."""
    layouts = [[(t.shape, t.stride(), t.dtype) for t in tensors] for tensors in sets]
    return all(layout == layouts[0] for layout in layouts)


def _dense_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose elements lie without gaps, strides kept where they can be."""
    layout = ArenaLayout()
    spec = layout.place(tensor)
    copy = torch.empty_strided(spec.shape, spec.stride, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)
