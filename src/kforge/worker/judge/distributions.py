"""The input distributions: what is done to a problem's own inputs before both sides see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kforge.worker import trees

_CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "natural": lambda x: x,
    "scaled": lambda x: x * 3,
    "small": lambda x: x * 0.01,
    "negated": lambda x: -x,
    "shifted": lambda x: x + 0.5,
}


def apply(name: str, arguments: list[Any]) -> list[Any]:
    """The arguments with every floating tensor changed; integers, masks and scalars stay."""
    change = _CHANGES[name]
    tree, tensors = trees.pack(arguments)
    return list(trees.unpack(tree, [change(t) if t.is_floating_point() else t for t in tensors]))


class Refresher:
    """Fresh content for an input set, cheaply: the drawn values rotated by a random offset and scaled a little.

    Every call then sees values never seen before, at the same addresses. Scaling stays within [0.75, 1], so that
    values drawn from a bounded range stay in it.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def refresh(self, drawn: torch.Tensor, target: torch.Tensor) -> None:
        """Write a fresh version of `drawn` to `target`: two dense tensors of the same layout."""
        source, sink = _flat(drawn), _flat(target)
        size = source.numel()
        if size == 0:
            return
        offset = int(torch.randint(size, (), generator=self._generator))
        pieces = ((source[offset:], sink[: size - offset]), (source[:offset], sink[size - offset :]))
        if source.is_floating_point() or source.is_complex():
            scale = 0.75 + 0.25 * float(torch.rand((), generator=self._generator))
            for piece, place in pieces:
                torch.mul(piece, scale, out=place)
        else:
            for piece, place in pieces:
                place.copy_(piece)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,))
