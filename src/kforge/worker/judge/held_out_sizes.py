"""Sizes inside a problem's declared ranges on which a program must be right, and which no prompt ever shows.

The ends of the ranges are known to everybody. Those between them are drawn: primes, neighbours of powers of two, and
multiples of one, which a kernel may have a path of its own for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kforge.errors import ProblemError
from kforge.types import AxisLength, Problem, Workload
from kforge.worker import trees
from kforge.worker.judge.problem_cases import ProblemCases

SEEDS = 2
"""Cases to check at each size."""
_TRIES = 200
_BLOCKS = (2, 4, 8, 16, 32, 64)
"""What kernels cut sizes into: with primes and neighbours of powers of two alone, hardly a size would be even."""


@dataclass(frozen=True)
class HeldOutSize:
    """One choice of sizes inside the declared ranges."""

    workload: Workload
    values: tuple[int, ...]
    """Of each dynamic size, in the order they are declared."""
    is_known: bool
    """Whether it lies at the ends of the ranges, which are no secret."""
    cases: ProblemCases


class HeldOutSizes:
    """The sizes that are tried for one problem, made when first asked for."""

    def __init__(self, problem: Problem, first: ProblemCases) -> None:
        """`first` are the cases of the problem's first workload."""
        self._problem = problem
        self._first = first
        self._sizes: list[HeldOutSize] | None = None
        self.unchecked: list[str] = []
        """What could not be tried."""

    def sizes(self) -> list[HeldOutSize]:
        """All of them, those at the ends of the ranges first."""
        if self._sizes is None:
            shown = {self._values_of(workload) for workload in self._problem.workloads}
            chosen = [each for each in choose_sizes(self._ranges(), self._dice()) if each[0] not in shown]
            self._sizes = [self._make(values, known, number) for number, (values, known) in enumerate(chosen)]
        return self._sizes

    def _dice(self) -> random.Random:
        return random.Random(self._first.derive("held out", 0))

    def _ranges(self) -> list[range]:
        """The values of each dynamic size, as far as they can be tried."""
        least = self._least_length()
        ranges = []
        for size in self._problem.dynamic:
            values = range(size.low, size.high + 1, size.step)
            usable = [value for value in values if value >= least] if size.low < least else values
            if len(usable) < len(values):
                self.unchecked.append(f"{size.name} below {least}: integers among the inputs may be indices up to it")
            ranges.append(range(usable[0], usable[-1] + 1, size.step) if usable else values[-1:])
        return ranges

    def _values_of(self, workload: Workload) -> tuple[Any, ...]:
        """A declared workload's own sizes; None for those that it leaves to the file."""
        return tuple(workload.constants.get(size.name) for size in self._problem.dynamic)

    def _least_length(self) -> int:
        """The least length of an axis of a live module's inputs that no index among them can lie beyond."""
        if not self._problem.payload:
            return 1
        tensors = trees.pack(self._first.reference.inputs(0))[1]
        kinds = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
        return max((1 + int(tensor.max()) for tensor in tensors if tensor.numel() and tensor.dtype in kinds), default=1)

    def _make(self, values: tuple[int, ...], is_known: bool, number: int) -> HeldOutSize:
        base, dynamic = self._problem.main_workload, self._problem.dynamic
        named = {size.name: value for size, value in zip(dynamic, values, strict=True)}
        name = ", ".join(f"{key} = {value}" for key, value in named.items())
        if self._problem.payload:
            lengths = [
                AxisLength(argument, axis, value)
                for size, value in zip(dynamic, values, strict=True)
                for argument, axis in size.axes
            ]
            workload = Workload(inputs=base.inputs, lengths=tuple(lengths), name=name)
        else:
            workload = Workload({**base.constants, **named}, name=name)
        seed = self._first.derive("held out", 1 + number)
        try:
            cases = ProblemCases(self._problem.at(workload), self._first.device, seed, self._first.init_seed)
        except ProblemError as error:
            raise ProblemError(
                f"the reference cannot be run with {name}, which lies inside the declared ranges: {error}",
                path=self._problem.path or self._problem.name,
            ) from None
        return HeldOutSize(workload, values, is_known, cases)


def choose_sizes(ranges: list[range], dice: random.Random) -> list[tuple[tuple[int, ...], bool]]:
    """Sizes to try, one of each range, and whether they lie at the ends: none twice.

    Both ends of all ranges; of several ranges the low end of one beside the high end of the next; then, inside, primes,
    neighbours of powers of two, and multiples of a block, which is drawn too.
    """
    ends = [tuple(each[0] for each in ranges), tuple(each[-1] for each in ranges)]
    if len(ranges) > 1:
        ends.append(tuple(each[-(number % 2)] for number, each in enumerate(ranges)))
    block = dice.choice([each for each in _BLOCKS if all(span[-1] >= 4 * each for span in ranges)] or _BLOCKS[:1])
    kinds = (_is_prime, _is_beside_a_power, lambda value: _is_multiple(value, block))
    inside = [tuple(_draw(each, dice, is_fit) for each in ranges) for is_fit in kinds]
    chosen: dict[tuple[int, ...], bool] = {}
    for values, is_known in [*((end, True) for end in ends), *((values, False) for values in inside)]:
        chosen.setdefault(values, is_known)
    return list(chosen.items())


def _draw(values: range, dice: random.Random, is_fit: Callable[[int], bool]) -> int:
    """One that is fit, drawn at random from within a range; any other where there is hardly one."""
    inner = values[1:-1] or values
    drawn = [inner[dice.randrange(len(inner))] for _ in range(_TRIES)]
    near = [value for value in (2**power + side for power in range(2, 40) for side in (-1, 1)) if value in inner]
    drawn += dice.sample(near, len(near))
    multiples = [value // block * block for block in reversed(_BLOCKS) for value in drawn]
    drawn += [value for value in multiples if value in inner]
    return next((value for value in drawn if is_fit(value)), drawn[0])


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % divisor for divisor in range(2, min(value, math.isqrt(value) + 1)))


def _is_beside_a_power(value: int) -> bool:
    """Whether a power of two, from 4 on, is one more or one less."""
    return any(power >= 4 and power & (power - 1) == 0 for power in (value - 1, value + 1))


def _is_multiple(value: int, block: int) -> bool:
    """Whether it is a multiple of a block, and no power of two: those are tried often enough."""
    return value % block == 0 and value & (value - 1) != 0
