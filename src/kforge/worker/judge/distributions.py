"""The input distributions: what is done to a problem's own inputs before both sides see them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kforge.worker import trees

_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "natural": lambda x: x,
    "scaled": lambda x: x * 3,
    "small": lambda x: x * 0.01,
    "negated": lambda x: -x,
    "shifted": lambda x: x + 0.5,
}


EXTREMES = "extremes"
_FAR = 1000.0
_LARGEST = 300.0


def _untouched(rows: torch.Tensor) -> torch.Tensor:
    return rows


def _large(rows: torch.Tensor) -> torch.Tensor:
    """Beyond what exp takes in float32, and what may be squared in float16."""
    return rows * (_LARGEST / rows.abs().amax().clamp(min=1e-6))


def _with(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """One element of each row, not the same in all of them."""

    def change(rows: torch.Tensor) -> torch.Tensor:
        flat = rows.clone().reshape(rows.shape[0], -1)
        numbers = torch.arange(flat.shape[0], device=flat.device)
        flat[numbers, (7 * numbers + 3) % flat.shape[1]] = value
        return flat.reshape(rows.shape)

    return change


_FINITE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as the problem gives them": _untouched,
    f"scaled to {_LARGEST:.0f}": _large,
    f"plus {_FAR:.0f}": lambda rows: rows + _FAR,
    f"minus {_FAR:.0f}": lambda rows: rows - _FAR,
    "times 1e-6": lambda rows: rows * 1e-6,
    "times 1e-20": lambda rows: rows * 1e-20,
}
_EQUAL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all zero": torch.zeros_like,
    "rounded to whole numbers": torch.round,
}
"""Where several elements are equal: which of them is chosen is nowhere said."""
_SPECIAL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "with a NaN": _with(float("nan")),
    "with an infinity": _with(float("inf")),
    "with a negative infinity": _with(float("-inf")),
}


@dataclass(frozen=True)
class Extremes:
    """Which edges of an operation a case reaches: rows (or entries of the first dimension) take turns over them."""

    special: bool
    """NaN and infinities in the first floating argument."""
    equal: bool
    all_arguments: bool
    """Whether every floating argument reaches them, and not only the first."""

    def apply(self, arguments: list[Any]) -> list[Any]:
        tree, tensors = trees.pack(arguments)
        floating = [number for number, tensor in enumerate(tensors) if tensor.is_floating_point() and tensor.numel()]
        changed = list(tensors)
        for place, number in enumerate(floating if self.all_arguments else floating[:1]):
            changed[number] = self._changed(tensors[number], special=self.special and place == 0)
        return list(trees.unpack(tree, changed))

    def words(self) -> str:
        """Which entries reach which edge."""
        names = list(self._turns(self.special))
        turns = ", ".join(f"{number} {name}" for number, name in enumerate(names))
        return f"extremes; by the first index modulo {len(names)}: {turns}"

    def _turns(self, special: bool) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
        return {**_FINITE, **(_EQUAL if self.equal else {}), **(_SPECIAL if special else {})}

    def _changed(self, tensor: torch.Tensor, special: bool) -> torch.Tensor:
        turns = list(self._turns(special).values())
        entries = tensor.reshape(-1, 1) if tensor.dim() < 2 else tensor
        if entries.shape[0] < len(turns):
            entries = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else entries
        result = entries.clone()
        for number, change in enumerate(turns):
            if number < entries.shape[0]:
                result[number :: len(turns)] = change(entries[number :: len(turns)])
        return result.reshape(tensor.shape)


def levels_of_extremes(choosing: bool) -> tuple[Extremes, ...]:
    """From the most to the least that a case may reach; the reference decides what it can take.

    Where an output says which element was chosen, there must be no doubt about that.
    """
    if choosing:
        return (Extremes(False, False, True), Extremes(False, False, False))
    return tuple(Extremes(special, True, whole) for special in (True, False) for whole in (True, False))


def apply(name: str, arguments: list[Any], integers_too: bool = False) -> list[Any]:
    """The arguments with every floating tensor changed; integers, masks and scalars stay.

    `integers_too` is for problems of integer arithmetic only, whose integers are no indices: those are negated.
    """
    change = _CHANGES[name]
    tree, tensors = trees.pack(arguments)

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        signed = integers_too and name == "negated" and tensor.dtype in _SIGNED
        return change(tensor) if tensor.is_floating_point() or signed else tensor

    return list(trees.unpack(tree, [changed(tensor) for tensor in tensors]))


@dataclass(frozen=True)
class Turn:
    """How to make fresh content from values drawn once: cheap, repeatable, and of no use to a memory of earlier calls.

    Floating values are rotated by one offset and multiplied by noise rotated by another. The noise stays within
    [0.75, 1], so that values drawn from a bounded range stay in it.
    """

    first: float
    """Offset of the drawn values, as a share of the elements."""
    second: float
    """Offset of the noise."""

    @classmethod
    def draw(cls, dice: random.Random) -> Turn:
        return cls(dice.random(), dice.random())

    def write(self, drawn: torch.Tensor, noise: torch.Tensor, target: torch.Tensor) -> None:
        """Write the turned version of `drawn` to `target`; all are dense and of the same layout."""
        size = drawn.numel()
        source, mixed, sink = _flat(drawn), _flat(noise), _flat(target)
        one, two = int(self.first * size), int(self.second * size)
        edges = sorted({0, size - one, size - two, size})
        for start, stop in itertools.pairwise(edges):
            length = stop - start
            here, there = (start + one) % size, (start + two) % size
            torch.mul(source[here : here + length], mixed[there : there + length], out=sink[start:stop])


_LEAST = 0.75


def make_noise(like: torch.Tensor, seed: int) -> torch.Tensor:
    """Noise for tensors like this one."""
    generator = torch.Generator(device=like.device).manual_seed(seed)
    noise = torch.rand(like.numel(), generator=generator, device=like.device).mul_(1 - _LEAST).add_(_LEAST)
    return noise.to(like.dtype).as_strided(like.shape, like.stride())


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,))
