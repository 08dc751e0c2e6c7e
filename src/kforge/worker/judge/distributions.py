"""The input distributions: what is done to a problem's own inputs before both sides see them."""

from __future__ import annotations

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


_LEAST_OVERALL, _LEAST_STRETCH, _LEAST_PATCH = 0.75, 0.85, 0.9
_STRETCH = 256
"""Patches that have a factor in common."""
_MOST_KEPT = 1 << 20
PATCH = 16
"""Elements that stay together: less than a cache line says nothing of the next one."""


class Patchwork:
    """Fresh content from values drawn once: many times as fast as drawing, and of no use to a memory of earlier calls.

    Patches of a few elements are taken from anywhere, each times a factor of its own, a factor that a stretch of them
    has in common, and one for all. So no sum, peak or mean is known before every element has been read. All factors
    are at most 1: values drawn from a bounded range stay in it.
    """

    def __init__(self, drawn: torch.Tensor) -> None:
        """`drawn` is dense."""
        kept = min(drawn.numel(), _MOST_KEPT)
        self._patches = _flat(drawn)[: kept // PATCH * PATCH].clone().view(-1, PATCH)

    def write(self, target: torch.Tensor, seed: int) -> None:
        """Fresh content for a dense tensor: the same for the same seed."""
        if target.device != self._patches.device:
            made_there = torch.empty_strided(
                target.shape, target.stride(), dtype=target.dtype, device=self._patches.device
            )
            self.write(made_there, seed)
            target.copy_(made_there)
            return
        generator = torch.Generator(device=self._patches.device).manual_seed(seed)
        sink = _flat(target)
        whole = sink.numel() // PATCH
        rows = torch.randint(
            len(self._patches), (whole + 1,), generator=generator, device=self._patches.device, dtype=torch.int32
        )
        made = sink[: whole * PATCH].view(-1, PATCH)
        torch.index_select(self._patches, 0, rows[:-1], out=made)
        sink[whole * PATCH :] = self._patches[rows[-1]][: sink.numel() - whole * PATCH]
        self._scale(sink, generator)

    @staticmethod
    def _scale(sink: torch.Tensor, generator: torch.Generator) -> None:
        count = -(-sink.numel() // PATCH)
        stretches = _factors(-(-count // _STRETCH), _LEAST_STRETCH, generator)
        stretches *= _factors(1, _LEAST_OVERALL, generator)
        factors = _factors(count, _LEAST_PATCH, generator)
        factors = factors.mul_(stretches.repeat_interleave(_STRETCH)[:count]).to(sink.dtype)
        whole = sink.numel() // PATCH
        sink[: whole * PATCH].view(-1, PATCH).mul_(factors[:whole, None])
        sink[whole * PATCH :].mul_(factors[whole:].repeat_interleave(PATCH)[: sink.numel() - whole * PATCH])


def scale(target: torch.Tensor, seed: int) -> None:
    """One factor for everything, in place: what is symmetric, sorted or positive definite stays so."""
    generator = torch.Generator(device=target.device).manual_seed(seed)
    target.mul_(_factors(1, _LEAST_OVERALL, generator).to(target.dtype))


def _factors(count: int, least: float, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, generator=generator, device=generator.device).mul_(1 - least).add_(least)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,))
