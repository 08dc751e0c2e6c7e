"""Is a correct program also right for inputs that the problem does not have? Other sizes, another layout in memory.

For information: nothing here decides an outcome. The reference says which changes make sense; what it cannot take is
not tried.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.judge.hazards import Calling, all_agree
from kforge.worker.judge.lane import InputSets, Lane
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.live_problem import resized

_MOST_TRIES = 6
_LONGEST_MESSAGE = 100

Tensors = list[torch.Tensor]


class GeneralityTrial:
    """Calls a program with inputs changed in one way each, in the runner that judged it; the runner may not survive.

    What the reference gives is found first, and needs the device; the program's calls do not need it for themselves.
    """

    def __init__(self, runner: RunnerHandle, cases: ProblemCases, seconds: float, calling: Calling) -> None:
        """`calling` is entered for each of the program's calls."""
        self._calling = calling
        self._runner = runner
        self._cases = cases
        self._seconds = seconds
        self._seed = cases.derive("generality", 0)
        self._changed = list(self._find_changes())
        self.lines: list[str] = []
        """What came of each change that was tried."""
        self.hazards: list[str] = []
        """The changes with which the program is wrong without a word: a clause each."""

    def run(self) -> None:
        """Try every change, until one ends the runner."""
        for named, arguments, expected in self._changed:
            try:
                wrong = self._call(arguments, expected)
            except ProgramError as error:
                message = " ".join(f"{error.report.kind}: {error.report.message}".split())[:_LONGEST_MESSAGE]
                self.lines.append(f"{named}: raises {message}")
                continue
            except RunnerLost:
                self.lines.append(f"{named}: crashes or hangs")
                self.hazards.append(f"it is given {named} (it crashes or hangs)")
                return
            self.lines.append(f"{named}: {'silently wrong' if wrong else 'right'}")
            self.hazards += [f"it is given {named}"] if wrong else []

    def _find_changes(self) -> Iterator[tuple[str, list[Any], Tensors]]:
        """Each change in words, the arguments so changed, and what the reference gives for them."""
        tree, tensors = trees.pack(self._cases.reference.inputs(self._seed))
        for change, candidates in (
            ("another batch size", other_batches),
            ("a size that is no multiple of 4", odd_sizes),
            ("a non-contiguous input", other_layouts),
        ):
            tried = self._first_that_makes_sense(tree, tensors, candidates)
            if tried is not None:
                arguments, expected, how = tried
                yield f"{change} ({how})" if how else change, arguments, expected

    def _first_that_makes_sense(
        self, tree: Any, tensors: Tensors, candidates: Callable[[Tensors], Iterator[tuple[Tensors, str]]]
    ) -> tuple[list[Any], Tensors, str] | None:
        """The first of some changes with which the reference runs, what it gives then, and the change in words."""
        for number, (changed, how) in enumerate(candidates(tensors)):
            if number == _MOST_TRIES:
                break
            arguments = list(trees.unpack(tree, changed))
            try:
                output = self._cases.reference.run(arguments, self._cases.timed_state, self._seed)
            except torch.OutOfMemoryError:
                return None
            except Exception:
                continue
            expected = [tensor.detach().clone() for tensor in trees.pack(output)[1]]
            if len(expected) == len(self._cases.outputs):
                return arguments, expected, how
        return None

    def _call(self, arguments: list[Any], expected: Tensors) -> bool:
        """Call the program: whether what it gives is wrong. Raises ProgramError where it raises."""
        shapes = tuple(tensor.to("meta") for tensor in expected)
        with contextlib.closing(InputSets([arguments], self._cases.device)) as sets:
            lane = Lane(self._runner, sets, shapes, self._seconds)
            with self._calling():
                block = lane.call([(0, 0, self._seed)], poison=True)
            leaves = block.outputs[0].leaves
            if len(leaves) != len(expected) or not all(leaf.delivered for leaf in leaves):
                return True
            return not all_agree(expected, lane.slots[0])


def other_batches(tensors: Tensors) -> Iterator[tuple[Tensors, str]]:
    """The inputs with another length of the first dimension, which all that have it share."""
    first = next((tensor for tensor in tensors if tensor.dim() and tensor.shape[0]), None)
    if first is None:
        return
    length = first.shape[0]
    # Whether an integer is an index into that dimension nobody knows; one beyond it ends a GPU's context.
    wanted = (length // 2) | 1 if length > 2 else 3
    if wanted < length and _largest_integer(tensors) >= wanted:
        return
    yield [_resized(tensor, 0, length, wanted) for tensor in tensors], f"{wanted} for {length}"


def odd_sizes(tensors: Tensors) -> Iterator[tuple[Tensors, str]]:
    """The inputs with one length, wherever it occurs, made one that nothing divides evenly; inner dimensions first."""
    if any(not tensor.is_floating_point() for tensor in tensors):
        return
    lengths = [tensor.shape[axis] for tensor in tensors for axis in reversed(range(1, tensor.dim()))]
    lengths += [tensor.shape[0] for tensor in tensors if tensor.dim()]
    for length in dict.fromkeys(lengths):
        wanted = length - 1 if length > 4 and (length - 1) % 4 else length - 2 if length > 4 else length + 1
        if wanted % 4 == 0:
            continue
        changed = tensors
        for axis in range(max(tensor.dim() for tensor in tensors)):
            changed = [_resized(tensor, axis, length, wanted) for tensor in changed]
        yield changed, f"{wanted} for {length}"


def other_layouts(tensors: Tensors) -> Iterator[tuple[Tensors, str]]:
    """The inputs with the same values in another order in memory."""
    if any(tensor.is_floating_point() and tensor.dim() > 1 for tensor in tensors):
        yield [_turned(tensor) for tensor in tensors], ""


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.dim() < 2:
        return tensor
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def _resized(tensor: torch.Tensor, axis: int, length: int, wanted: int) -> torch.Tensor:
    """The tensor with another length along an axis, if it has that length there."""
    if tensor.dim() <= axis or tensor.shape[axis] != length:
        return tensor
    return resized(tensor, axis, wanted)


def _largest_integer(tensors: Tensors) -> int:
    whole = [tensor for tensor in tensors if not tensor.is_floating_point() and not tensor.is_complex()]
    return max((int(tensor.max()) for tensor in whole if tensor.numel()), default=-1)
