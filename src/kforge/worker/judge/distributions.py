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
    "shifted": lambda x: x + _SHIFT,
}
_FACTORS = {"scaled": 3.0, "small": 0.01, "negated": -1.0}
_SHIFT = 0.5


EXTREMES = "extremes"
_FAR = 1000.0
_LARGEST = 300.0
_MOST_ENTRIES = 1 << 16


_Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
"""What is done to some entries of a tensor."""


def _scale_to_largest(entries: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Scale entries beyond what exp takes in float32, and what may be squared in float16."""
    return entries * (_LARGEST / entries.abs().amax().clamp(min=1e-6))


def _insert_value(value: float) -> _Change:
    """The change that sets one element of each entry to a value: of four entries the first element of one, the last
    of another, which loops leave out most easily, and elsewhere one drawn at random."""

    def change(entries: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        flat = entries.clone().reshape(entries.shape[0], -1)
        count, length = flat.shape
        turns = (torch.arange(count) + torch.randint(4, (1,), generator=generator)) % 4
        places = torch.randint(length, (count,), generator=generator)
        places[turns == 0], places[turns == 1] = 0, length - 1
        flat[torch.arange(count, device=flat.device), places.to(flat.device)] = value
        return flat.reshape(entries.shape)

    return change


_USUAL = "as the problem gives them"
_LARGE: dict[str, _Change] = {
    f"scaled to {_LARGEST:.0f}": _scale_to_largest,
    f"plus {_FAR:.0f}": lambda entries, _: entries + _FAR,
    f"minus {_FAR:.0f}": lambda entries, _: entries - _FAR,
}
_SMALL: dict[str, _Change] = {
    "times 1e-6": lambda entries, _: entries * 1e-6,
    "times 1e-20": lambda entries, _: entries * 1e-20,
}
_EQUAL: dict[str, _Change] = {
    "all zero": lambda entries, _: torch.zeros_like(entries),
    "rounded to halves": lambda entries, _: torch.round(2 * entries) / 2,
}
"""Where several elements are equal: which of them is chosen is nowhere said."""
_SPECIAL: dict[str, _Change] = {
    "with a NaN": _insert_value(float("nan")),
    "with an infinity": _insert_value(float("inf")),
    "with a negative infinity": _insert_value(float("-inf")),
}
_NAN_ALONE = {"with a NaN": _SPECIAL["with a NaN"]}


def _is_constant(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 1 and bool((tensor == tensor[(0,) * tensor.dim()]).all())


@dataclass(frozen=True)
class Extremes:
    """Which edges of an operation a case reaches.

    Which entry of the first dimension (or which row, where there are few) reaches which of them is drawn at random.
    """

    special: bool
    """NaN and infinities in the first floating argument."""
    equal: bool
    all_arguments: bool
    """Whether every floating argument reaches them, and not only the first."""
    nan_everywhere: bool = False
    """Whether NaN is in every one of these: what infinities in several arguments give is often nobody's intention."""
    multiplying: bool = False
    """Whether arguments are multiplied and summed up. Then NaN alone is special, and large values are in the first
    argument only: rounding of their products' sums is larger than what an exponential behind it takes."""

    def apply(self, arguments: list[Any], seed: int) -> list[Any]:
        tree, tensors = trees.pack(arguments)
        generator = torch.Generator().manual_seed(seed)
        changed = list(tensors)
        for place, number in enumerate(self._floating_indices(tensors)[: None if self.all_arguments else 1]):
            special = _NAN_ALONE if place and self.nan_everywhere else {} if place else self._special_edges()
            changes = self._edges(special, large=not (place and self.multiplying))
            changed[number] = self._change_tensor(tensors[number], list(changes.values()), generator)
        return list(trees.unpack(tree, changed))

    def mark(self, tensors: list[torch.Tensor], seed: int, special: bool = True) -> int | None:
        """Have one entry of the first floating tensor reach one edge, in place; says which entry it is.

        Without `special`, neither NaN nor an infinity is among them.
        """
        generator = torch.Generator().manual_seed(seed)
        for number in self._floating_indices(tensors)[:1]:
            entries = tensors[number]
            if entries.dim() < 2:
                return None
            changes = list(self._edges(self._special_edges() if special else {}).values())
            entry = int(torch.randint(entries.shape[0], (1,), generator=generator))
            change = changes[int(torch.randint(1, len(changes), (1,), generator=generator))]
            entries[entry : entry + 1] = change(entries[entry : entry + 1].clone(), generator)
            return entry
        return None

    def description(self) -> str:
        """The edges there are, as a sentence says them."""
        edges = self._edges(self._special_edges())
        return f"extremes; entries of the first dimension are, in random order, {', '.join(edges)}"

    @staticmethod
    def _floating_indices(tensors: list[torch.Tensor]) -> list[int]:
        return [number for number, tensor in enumerate(tensors) if tensor.is_floating_point() and tensor.numel()]

    def _special_edges(self) -> dict[str, _Change]:
        return {} if not self.special else _NAN_ALONE if self.multiplying else _SPECIAL

    def _edges(self, special: dict[str, _Change], large: bool = True) -> dict[str, _Change]:
        usual: dict[str, _Change] = {_USUAL: lambda entries, _: entries}
        return {**usual, **(_LARGE if large else {}), **_SMALL, **(_EQUAL if self.equal else {}), **special}

    @staticmethod
    def _change_tensor(tensor: torch.Tensor, changes: list[_Change], generator: torch.Generator) -> torch.Tensor:
        entries = tensor.reshape(-1, 1) if tensor.dim() < 2 else tensor
        if entries.shape[0] < len(changes):
            entries = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else entries
        result = entries.clone()
        # Of very many, neighbours reach the same edge: each on its own would take longer than everything else.
        together = -(-entries.shape[0] // _MOST_ENTRIES)
        groups = entries.shape[0] // together
        places = torch.unflatten(result[: groups * together], 0, (groups, together))
        order = torch.randperm(groups, generator=generator).to(entries.device)
        for number, change in enumerate(changes):
            chosen = order[number :: len(changes)]
            if chosen.numel():
                places[chosen] = change(places[chosen], generator)
        return result.reshape(tensor.shape)


def levels_of_extremes(choosing: bool, multiplying: bool = False) -> tuple[Extremes, ...]:
    """Extremes from the most to the least that a case may reach; the reference decides what it can take.

    Where an output says which element was chosen, there must be no doubt about that. What becomes of an infinity in
    sums of products is a matter of their order (with a factor taken out, or by Winograd's or Strassen's algorithm, one
    is subtracted from another), so that where the reference is `multiplying` matrices there is none. NaN stays NaN.
    """
    if choosing:
        return (Extremes(False, False, True), Extremes(False, False, False))
    everywhere = Extremes(True, True, True, nan_everywhere=True, multiplying=multiplying)
    others = (
        Extremes(special, True, whole, multiplying=multiplying) for special in (True, False) for whole in (True, False)
    )
    return everywhere, *others


def apply(name: str, arguments: list[Any], seed: int, integers_too: bool = False) -> list[Any]:
    """The arguments with every floating tensor changed; integers, masks and scalars stay.

    A tensor whose elements are all equal, an initial state of zeros say, is shifted by another value for each of them.
    `integers_too` is for problems of integer arithmetic only, whose integers are no indices: those are negated.
    """
    change = _CHANGES[name]
    tree, tensors = trees.pack(arguments)
    generator = torch.Generator().manual_seed(seed)

    def change_tensor(tensor: torch.Tensor) -> torch.Tensor:
        if name == "shifted" and tensor.is_floating_point() and _is_constant(tensor):
            return tensor + torch.rand(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)
        signed = integers_too and name == "negated" and tensor.dtype in _SIGNED
        return change(tensor) if tensor.is_floating_point() or signed else tensor

    return list(trees.unpack(tree, [change_tensor(tensor) for tensor in tensors]))


_LEAST_OVERALL, _LEAST_STRETCH, _LEAST_PATCH = 0.75, 0.85, 0.9
_STRETCH = 256
"""Patches that have a factor in common."""
_MOST_KEPT = 1 << 20
"""Elements of which patches are taken: as many patches as sixteen bits tell apart."""
_NOISE = 4099
PATCH = 16
"""Elements that stay together: less than a cache line says nothing of the next one."""


class Patchwork:
    """Fresh content from values drawn once: many times as fast as drawing, and of no use to a memory of earlier calls.

    Patches of a few elements are taken from anywhere, each times a factor of its own, a factor that a stretch of them
    has in common, one for all, and one for each element that comes again much later, in step with no patch. So no sum,
    peak or mean is known before every element has been read, and no patch is a multiple of an earlier one. All
    factors are at most 1: values drawn from a bounded range stay in it.
    """

    def __init__(self, drawn: torch.Tensor) -> None:
        """`drawn` is dense."""
        kept = min(drawn.numel(), _MOST_KEPT)
        self._patches = _flatten(drawn)[: kept // PATCH * PATCH].clone().view(-1, PATCH)
        self._constant = _is_constant(drawn)

    def write(self, target: torch.Tensor, seed: int, name: str = "natural") -> None:
        """Fresh content for a dense tensor, under a distribution: the same for the same seed."""
        if target.device != self._patches.device:
            made_there = torch.empty_strided(
                target.shape, target.stride(), dtype=target.dtype, device=self._patches.device
            )
            self.write(made_there, seed, name)
            target.copy_(made_there)
            return
        generator = torch.Generator(device=self._patches.device).manual_seed(seed)
        sink = _flatten(target)
        whole, count = sink.numel() // PATCH, -(-sink.numel() // PATCH)
        rows = _sixteen_bits(count, generator).mul_(len(self._patches)).bitwise_right_shift_(16)
        made = sink[: whole * PATCH].view(-1, PATCH)
        torch.index_select(self._patches, 0, rows[:whole], out=made)
        factors = self._patch_factors(count, generator, _FACTORS.get(name, 1.0)).to(sink.dtype)
        made.mul_(factors[:whole, None])
        if count > whole:
            rest = self._patches[rows[-1]][: sink.numel() - whole * PATCH]
            torch.mul(rest, factors[-1], out=sink[whole * PATCH :])
        noise = _factors(_NOISE, _LEAST_PATCH, generator).to(sink.dtype)
        repeats = sink.numel() // _NOISE
        sink[: repeats * _NOISE].view(-1, _NOISE).mul_(noise)
        sink[repeats * _NOISE :].mul_(noise[: sink.numel() - repeats * _NOISE])
        if name == "shifted":
            sink.add_(
                _SHIFT
                if not self._constant
                else torch.rand(sink.shape, generator=generator, device=sink.device).to(sink)
            )

    @staticmethod
    def _patch_factors(count: int, generator: torch.Generator, overall: float) -> torch.Tensor:
        stretches = _factors(-(-count // _STRETCH), _LEAST_STRETCH, generator)
        stretches *= overall * _factors(1, _LEAST_OVERALL, generator)
        step = (1 - _LEAST_PATCH) / (1 << 16)
        factors = _sixteen_bits(count, generator).to(torch.float32).mul_(step).add_(_LEAST_PATCH)
        return factors.mul_(stretches.repeat_interleave(_STRETCH)[:count])


def scale(target: torch.Tensor, seed: int) -> None:
    """Multiply everything by one factor, in place: what is symmetric, sorted or positive definite stays so."""
    generator = torch.Generator(device=target.device).manual_seed(seed)
    target.mul_(_factors(1, _LEAST_OVERALL, generator).to(target.dtype))


def _sixteen_bits(count: int, generator: torch.Generator) -> torch.Tensor:
    """Numbers from 0 to 65535, four from each that the generator makes, which is what takes time."""
    drawn = torch.empty(-(-count // 4), dtype=torch.int64, device=generator.device)
    drawn.random_(-(1 << 63), None, generator=generator)
    return drawn.view(torch.int16)[:count].to(torch.int64).bitwise_and_(0xFFFF)


def _factors(count: int, least: float, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, generator=generator, device=generator.device).mul_(1 - least).add_(least)


def _flatten(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,))
