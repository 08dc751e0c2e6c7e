"""Which tensor of the candidate holds which tensor of the reference.

By name and shape first. Honest kernels rename and transpose, so what is left is matched by the values both modules
were initialised with under one seed, through permutations and reshapes. What cannot be matched is said.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from kforge.worker.arena import tensor_hash
from kforge.worker.judge.reference import State
from kforge.worker.protocol.records import HeldTensor

_MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class Match:
    """Candidate tensor `name` is the reference's `source`, its axes permuted, then reshaped."""

    name: str
    source: str
    axes: tuple[int, ...]
    shape: tuple[int, ...]

    def value(self, state: State) -> torch.Tensor:
        return state[self.source].permute(self.axes).reshape(self.shape)

    def __str__(self) -> str:
        how = "" if self.axes == tuple(sorted(self.axes)) else f" with axes {self.axes}"
        name, source = self.name.lstrip("="), self.source.lstrip("=")
        return f"{source} = {name}{how}" if name != source or how else source


def check_held_tensors(held: list[HeldTensor]) -> None:
    """ValueError if a runner's description of its state is of no tensors that can be."""
    if not all(item.name and all(length >= 0 for length in item.shape) for item in held):
        raise ValueError("a tensor's description is malformed")


def match(state: State, held: list[HeldTensor]) -> tuple[list[Match], list[str]]:
    """(matches, names of the reference's tensors that found none)."""
    by_name = {item.name: item for item in held}
    matches: list[Match] = []
    missing: list[str] = []
    for name, value in state.items():
        # A buffer that is not persistent here may be so there.
        item = by_name.get(name) or by_name.get(name.lstrip("="))
        if item is not None and item.shape == tuple(value.shape):
            matches.append(Match(item.name, name, tuple(range(value.dim())), item.shape))
            del by_name[item.name]
        else:
            missing.append(name)
    free = list(by_name.values())
    lost = []
    for name in missing:
        hit = _match_by_value(name, state[name], free)
        if hit is None:
            lost.append(name)
        else:
            matches.append(hit)
            free = [item for item in free if item.name != hit.name]
    return matches, lost


def _match_by_value(name: str, value: torch.Tensor, free: list[HeldTensor]) -> Match | None:
    straight = tuple(range(value.dim()))
    orders = itertools.permutations(straight) if 2 <= value.dim() <= _MAX_DIMENSIONS else [straight]
    for axes in orders:
        turned = value.permute(axes)
        digest = tensor_hash(turned)
        same = [item for item in free if item.digest == digest and _numel(item.shape) == value.numel()]
        exact = next((item for item in same if item.shape == tuple(turned.shape)), None)
        item = exact or (same[0] if same else None)
        if item is not None:
            return Match(item.name, name, axes, item.shape)
    return None


def _numel(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total
