"""The input distributions: what is done to a problem's own inputs before both sides see them."""

from __future__ import annotations

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
    """How to make fresh content from drawn values: rotate by an offset, scale a little. Repeatable.

    Scaling stays within [0.75, 1], so that values drawn from a bounded range stay in it.
    """

    offset: float
    """Share of the elements, 0 to 1."""
    scale: float

    @classmethod
    def draw(cls, dice: random.Random) -> Turn:
        return cls(dice.random(), 0.75 + 0.25 * dice.random())

    def write(self, drawn: torch.Tensor, target: torch.Tensor) -> None:
        """Write the turned version of `drawn` to `target`: two dense tensors of the same layout."""
        source, sink = _flat(drawn), _flat(target)
        size = source.numel()
        offset = int(self.offset * size)
        for piece, place in ((source[offset:], sink[: size - offset]), (source[:offset], sink[size - offset :])):
            if source.is_floating_point() or source.is_complex():
                torch.mul(piece, self.scale, out=place)
            else:
                place.copy_(piece)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,))
