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
    [0.75, 1], so that values drawn from a bounded range stay in it. Integers are picked from two drawn tensors by a
    rotated mask.
    """

    first: float
    """Offset of the drawn values, as a share of the elements."""
    second: float
    """Offset of the noise, or of the mask."""

    @classmethod
    def draw(cls, dice: random.Random) -> Turn:
        return cls(dice.random(), dice.random())

    def write(self, drawn: torch.Tensor, other: torch.Tensor, noise: torch.Tensor, target: torch.Tensor) -> None:
        """Write the turned version of `drawn` to `target`; all are dense and of the same layout."""
        size = drawn.numel()
        source, mixed, sink = _flat(drawn), _flat(noise), _flat(target)
        one, two = int(self.first * size), int(self.second * size)
        if not source.is_floating_point() and not source.is_complex():
            sink.copy_(torch.where(mixed.roll(-two) > _MIDDLE, source.roll(-one), _flat(other).roll(-two)))
            return
        edges = sorted({0, size - one, size - two, size})
        for start, stop in itertools.pairwise(edges):
            length = stop - start
            here, there = (start + one) % size, (start + two) % size
            torch.mul(source[here : here + length], mixed[there : there + length], out=sink[start:stop])


_LEAST = 0.75
_MIDDLE = 0.875


def make_noise(like: torch.Tensor, seed: int) -> torch.Tensor:
    """Noise for tensors like this one."""
    generator = torch.Generator(device=like.device).manual_seed(seed)
    dtype = like.dtype if like.is_floating_point() else torch.float32
    noise = torch.rand(like.numel(), generator=generator, device=like.device).mul_(1 - _LEAST).add_(_LEAST)
    return noise.to(dtype).as_strided(like.shape, like.stride())


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,))
