"""What the judge knows of one problem, kept from candidate to candidate: cases, audit, baselines."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from kforge.errors import HarnessError
from kforge.types import BaselineTime, Limits, Problem, Settings
from kforge.worker import trees
from kforge.worker.arena import Arena, Layout
from kforge.worker.judge import audit, distributions, machine, statistics, timing
from kforge.worker.judge.compare import Expected, Tolerance, compare, make_leaf
from kforge.worker.judge.integrity import Observation, read_observation
from kforge.worker.judge.lane import Block, InputSets, Lane
from kforge.worker.judge.nursery import Nursery
from kforge.worker.judge.reference import Reference, State
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost

_KEEP_BYTES = 256 << 20
_MOSTLY_FINITE = 0.5
_COMPILE_SECONDS = 600.0
_LONG_CALL = 0.01
_LARGE_SHARE = 16


@dataclass(frozen=True)
class Case:
    """One checked call: what goes in, and what must come out."""

    distribution: str
    seed: int
    arguments: list[Any]
    state: State
    expected: Expected


class Session:
    """One problem on one platform under one master seed."""

    def __init__(self, problem: Problem, device_class: str, trusted: Nursery, settings: Settings, seed: int) -> None:
        self.problem = problem
        self.seed = seed
        self.reference = Reference(problem, device_class)
        self.init_seed = self._derive("init", 0)
        self.initial_state = self.reference.initial_state(self.init_seed)
        self.unchecked: list[str] = []
        self.notes: list[str] = []
        self._trusted = trusted
        self._timing_seconds = settings.timing_seconds
        self._lanes: dict[str, Lane] = {}
        self._sets: InputSets | None = None
        self._drawn: list[list[torch.Tensor]] = []
        self._contents: list[int] = []
        self._can_turn = False
        self._observation: Observation | None = None
        self._trees: list[Any] = []
        self._kept: dict[tuple[int, str], Case] = {}
        self._eager_errors: list[tuple[float, float]] = []
        self._ratios: dict[str, BaselineTime] = {}
        self._self_deviation: float | None = None
        self._refreshes = 0
        self._prepare()

    def _derive(self, purpose: str, index: int) -> int:
        text = f"{self.seed}/{purpose}/{index}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")

    def _prepare(self) -> None:
        """One natural case: its time, its operators, and the audit."""
        seed = self._derive("case", 0)
        arguments = self.reference.inputs(seed)
        try:
            first = self.reference.run(arguments, self.initial_state, seed)
            spent = self.reference.seconds(arguments, self.initial_state, seed)
            other = self.reference.run(arguments, self.initial_state, seed + 1)
        except Exception as error:
            raise self.reference.fault_in_forward(error) from error
        self.call_seconds = spent
        tree, tensors = trees.pack(first)
        if trees.foreign(tree):
            raise self.reference.fault_in_forward(TypeError(f"it returns a {trees.foreign(tree)}"))
        self.stochastic = not all(map(_same, tensors, trees.pack(other)[1]))
        if self.stochastic:
            self.unchecked.append("the reference draws random numbers: compared in its own precision, not float64")
        self.outputs = tuple(tensor.detach().to("meta") for tensor in tensors)
        """What a call returns: shapes and types, no values."""
        self.set_bytes = timing.tensor_bytes(trees.pack(arguments)[1]) + timing.tensor_bytes(tensors)
        self.large = self.set_bytes > machine.total_memory() // _LARGE_SHARE
        """Whether two sets of inputs and outputs are already a burden here."""
        del first, other, tensors
        self.degenerate = tuple(audit.audit(self.reference, arguments, self.initial_state, spent, seed))

    def observation(self) -> Observation:
        """Which operators the reference runs."""
        if self._observation is None:
            runner = self.lane("eager").runner
            reply = runner.ask({"op": "observe", "set": 0, "seed": self._derive("observe", 0)}, self.deadline() + 60)
            self._observation = read_observation(reply, ())
        return self._observation

    # -- cases -----------------------------------------------------------------------------------------------------

    def cases(self, count: int) -> Iterator[Case]:
        """`count` cases, rotating over the distributions the problem can take; kept where they are small."""
        names = list(self.problem.distributions)
        index = 0
        while index < count and names:
            name = names[index % len(names)]
            case = self._kept.get((index, name)) or self._make_case(index, name)
            if case is None:
                names.remove(name)
                continue
            if count * self.set_bytes <= _KEEP_BYTES:
                self._kept[index, name] = case
            yield case
            del case
            index += 1
        if not index:
            raise HarnessError(f"the reference of {self.problem.name} gives no usable output under any distribution")

    def _make_case(self, index: int, name: str) -> Case | None:
        seed = self._derive("case", index)
        arguments = self.reference.inputs(seed)
        floating = any(tensor.is_floating_point() for tensor in trees.pack(arguments)[1])
        arguments = distributions.apply(name, arguments, integers_too=not floating and not self.reference.movable())
        state = self.initial_state
        if index:
            state = self.reference.randomised(state, self._derive("state", index))
        try:
            with self.quiet():
                expected = self._expect(arguments, state, seed)
        except Exception as error:
            if name == "natural":
                raise self.reference.fault_in_forward(error) from error
            self._drop(f"distribution {name}: the reference raises {type(error).__name__} on it")
            return None
        if name != "natural" and not _mostly_finite(expected):
            self._drop(f"distribution {name}: the reference's output is mostly not finite on it")
            return None
        return Case(name, seed, arguments, state, expected)

    def _drop(self, reason: str) -> None:
        if reason not in self.unchecked:
            self.unchecked.append(reason)

    def _expect(self, arguments: list[Any], state: State, seed: int) -> Expected:
        tree, eager = trees.pack(self.reference.run(arguments, state, seed))
        eager = [tensor.detach().clone() for tensor in eager]
        exact: list[Any] = [None] * len(eager)
        if self.large:
            self._drop("too large for a float64 reference here: compared in its own precision")
        elif not self.stochastic:
            try:
                exact = trees.pack(self.reference.run_double(arguments, state, seed))[1]
            except Exception as error:
                self._drop(f"no float64 reference ({type(error).__name__}): compared in its own precision")
        leaves = tuple(make_leaf(one, two) for one, two in zip(eager, exact, strict=True))
        if not self._eager_errors:
            self._eager_errors = [(leaf.eager_norm, leaf.eager_worst) for leaf in leaves]
        return Expected(tree, tuple(eager), leaves)

    # -- timing ----------------------------------------------------------------------------------------------------

    def sets(self) -> InputSets:
        """Input sets to rotate over in timed blocks, drawn once; every side reads them from the same memory."""
        if self._sets is None:
            count = timing.set_count(self.call_seconds, self.set_bytes)
            # One more than counts: the last one is for the calls that get an idle runner going again.
            count = 1 if self.large else count + 1
            drawn = [self.reference.inputs(self._derive("timing", index)) for index in range(count)]
            self._trees = [trees.pack(arguments)[0] for arguments in drawn]
            self._sets = InputSets(drawn)
            self._contents = [0] * count
            if not self.large:
                self._drawn = [[_dense(tensor) for tensor in trees.pack(arguments)[1]] for arguments in drawn]
                self._can_turn = self._try_turning()
        return self._sets

    def watched_sets(self) -> InputSets:
        """Inputs for watched calls: a second set unlike the first, where there is room for it."""
        count = 1 if self.large else 2
        return InputSets([self.reference.inputs(self._derive("watched", index)) for index in range(count)])

    def seeds(self) -> list[int | None]:
        return [self._derive("call", i) if self.stochastic else None for i in range(len(self.sets().tensors))]

    def refresh(self) -> None:
        """Fresh content for every set."""
        for index, targets in enumerate(self.sets().tensors):
            self._refreshes += 1
            self._contents[index] = self._refreshes
            self._write_content(index, targets)

    def content(self, index: int) -> list[torch.Tensor]:
        """What a set was given last, made again from what only the judge holds."""
        targets = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for t in self.sets().tensors[index]]
        self._write_content(index, targets)
        return targets

    def _write_content(self, index: int, targets: list[torch.Tensor]) -> None:
        seed = self._derive("fresh", self._contents[index])
        if self._can_turn:
            dice = random.Random(seed)
            for drawn, target in zip(self._drawn[index], targets, strict=True):
                distributions.Turn.draw(dice).write(drawn, target)
        else:
            for value, target in zip(trees.pack(self.reference.inputs(seed))[1], targets, strict=True):
                target.copy_(value)

    def _try_turning(self) -> bool:
        """Whether rotated and scaled values are still inputs this problem can take."""
        self._can_turn = True
        try:
            arguments = list(trees.unpack(self._trees[0], self.content(0)))
            output = self.reference.run(arguments, self.initial_state, 0)
        except Exception:
            return False
        floats = [tensor for tensor in trees.pack(output)[1] if tensor.is_floating_point()]
        return all(bool(torch.isfinite(tensor).any()) for tensor in floats if tensor.numel())

    def lane(self, name: str) -> Lane:
        """The runner that times a baseline, made when first asked for."""
        if name not in self._lanes:
            runner = self._trusted.spawn(Limits(build_seconds=_COMPILE_SECONDS))
            try:
                self._load(runner, compiled=name == "compile")
                lane = Lane(runner, self.sets(), self.outputs, self.deadline() + _COMPILE_SECONDS)
                seeds = self.seeds()
                lane.call([(i, i, seeds[i]) for i in range(len(seeds))])
            except BaseException:
                runner.kill()
                raise
            self._lanes[name] = lane
        return self._lanes[name]

    def _load(self, runner: RunnerHandle, compiled: bool) -> None:
        shared = {"training": self.reference.training, "compile": compiled}
        if self.problem.payload:
            with open(self.problem.payload, "rb") as file:
                runner.ask({"op": "load_live", **shared}, 60, (file.fileno(),))
        else:
            request = {"op": "load", "source": self.reference.source, "class_name": "Model", "watched": False, **shared}
            send_load(runner, request, self.reference.init_arguments, self.init_seed, 120)

    def deadline(self) -> float:
        """How long the reference itself may reasonably need for a block."""
        return 20 * self.call_seconds * max(1, len(self._contents)) + 2e-9 * self.set_bytes

    def self_deviation(self) -> float:
        """How far eager against itself, in two processes, is from 1 on this machine: a floor for every interval."""
        if self._self_deviation is None:
            samples = self._duel(self.lane("eager twin"), self.lane("eager"))
            self._self_deviation = abs(statistics.median(samples.ratios()) - 1.0)
            self._close_lane("eager twin")
        return self._self_deviation

    def baselines(self, with_compile: bool) -> dict[str, BaselineTime]:
        """Every baseline with its speed against eager, each measured once."""
        self._ratios.setdefault("eager", BaselineTime("eager", 1.0))
        if with_compile and "compile" not in self._ratios:
            self._ratios["compile"] = self._measure_compile()
        return dict(self._ratios)

    def _measure_compile(self) -> BaselineTime:
        try:
            compiled = self.lane("compile")
            eager = self.lane("eager")
            samples = self._duel(compiled, eager, check=self.checker())
            return BaselineTime("compile", statistics.median(samples.ratios()))
        except ProgramError as error:
            message = str(error.report.get("message", "")).strip().splitlines()
            reason = f"torch.compile failed: {error.report.get('type')}: {message[-1] if message else ''}"
        except WrongOutput as error:
            reason = f"torch.compile's output is wrong here: {error}"
        except RunnerLost as error:
            reason = f"torch.compile: {error}"
        self._close_lane("compile")
        return BaselineTime("compile", None, reason[:500])

    def _duel(self, candidate: Lane, baseline: Lane, check: timing.Check | None = None) -> timing.Samples:
        seconds = max(self._timing_seconds, 0.3)
        with self.quiet():
            return timing.Duel(candidate, baseline, self.refresh, seconds, self.seeds(), check).run()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep the judge's own worker threads out of the way: they would go on spinning into a runner's call.

        A reference that takes long is worth its threads; their spinning then no longer matters.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(threads if self.call_seconds > _LONG_CALL else 1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def checker(self, tolerance: Tolerance | None = None) -> timing.Check:
        """Verifies a timed call's output against eager on the very inputs it had."""
        limits = tolerance or Tolerance(self.problem.tolerances)
        seeds = self.seeds()

        def check(lane: Lane, slot: int, block: Block) -> None:
            if not all(delivered for *_, delivered in block.outputs[slot].leaves):
                raise WrongOutput("a timed call returned something of another shape or type")
            inputs = self.content(slot)
            arguments = list(trees.unpack(self._trees[slot], inputs))
            _, outputs = trees.pack(self.reference.run(arguments, self.initial_state, seeds[slot] or 0))
            for number, (output, (norm, worst)) in enumerate(zip(outputs, self._eager_errors, strict=True)):
                # Eager stands in for float64 here, with the errors it showed on the first case.
                leaf = replace(make_leaf(output, None), eager_norm=norm, eager_worst=worst)
                difference = compare(leaf, lane.slots[slot][number], limits, f"output {number}")
                if difference.message:
                    raise WrongOutput(difference.message)
            if not lane.settled(block):
                raise Unsettled
            if not all(map(same_bits, self.sets().tensors[slot], inputs)):
                raise InputsChanged

        return check

    def _close_lane(self, name: str) -> None:
        lane = self._lanes.pop(name, None)
        if lane is not None:
            lane.runner.kill()

    def close(self) -> None:
        for name in list(self._lanes):
            self._close_lane(name)
        if self._sets is not None:
            self._sets.close()


class WrongOutput(Exception):
    """A timed call's output is not what the reference gives."""


class Unsettled(Exception):
    """A slot was written to after the runner had said it was done."""


class InputsChanged(Exception):
    """A timed call wrote to its inputs."""


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Equal to the last bit, NaN included."""
    return torch.equal(one.reshape(-1).view(torch.uint8), two.contiguous().reshape(-1).view(torch.uint8))


def send_load(runner: RunnerHandle, request: dict[str, Any], arguments: list[Any], seed: int, seconds: float) -> Any:
    """Ask a runner to import a program and construct its module with these arguments."""
    tree, tensors = trees.pack(arguments)
    layout = Layout()
    specs = [layout.place(tensor) for tensor in tensors]
    message = {**request, "arguments": tree, "specs": [spec.to_json() for spec in specs], "seed": seed, "size": 0}
    if not tensors:
        return runner.ask(message, seconds)
    arena = Arena.create(layout.size)
    try:
        for spec, tensor in zip(specs, tensors, strict=True):
            arena.tensor(spec).copy_(tensor)
        return runner.ask({**message, "size": arena.size}, seconds, (arena.fd,))
    finally:
        arena.close()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose elements lie without gaps, strides kept where they can be."""
    layout = Layout()
    spec = layout.place(tensor)
    copy = torch.empty_strided(spec.shape, spec.stride, dtype=tensor.dtype)
    return copy.copy_(tensor)


def _same(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.shape != two.shape:
        return False
    equal = one == two
    if one.is_floating_point() or one.is_complex():
        equal = equal | (torch.isnan(one) & torch.isnan(two))
    return bool(equal.all())


def _mostly_finite(expected: Expected) -> bool:
    floats = [tensor for tensor in expected.outputs if tensor.is_floating_point() and tensor.numel()]
    return all(float(torch.isfinite(tensor).double().mean()) >= _MOSTLY_FINITE for tensor in floats)
