"""A float64 reference of what does not fit whole: a few rows at a time, where rows do not depend on others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kforge.worker import trees

_SAME = 1e-5
"""How far the first and last rows, computed alone, may be from the same rows of the whole, as a share of the norm."""
_END_ROWS = 4


class Inseparable(Exception):
    """Rows of the output depend on other rows of the input, or there are no rows."""


def run_in_pieces(
    double: Callable[[list[Any]], Any],
    single: Callable[[list[Any]], Any],
    arguments: list[Any],
    eager: list[torch.Tensor],
    piece_bytes: int,
) -> list[torch.Tensor]:
    """The float64 output, made from pieces along the first axis; Inseparable where that would not be the same.

    `double` and `single` run the reference on arguments in either precision; `eager` is its output on all of them. An
    output that eager has exactly, to the last element, is eager's own tensor: float64 would take twice its memory.
    """
    tree, tensors = trees.pack(arguments)
    rows = max((len(tensor) for tensor in tensors if tensor.dim()), default=0)
    split = [tensor.dim() > 0 and len(tensor) == rows for tensor in tensors]
    if rows < 2 or not any(split) or not all(output.dim() and len(output) == rows for output in eager):
        raise Inseparable("inputs and outputs have no first axis in common")
    total = sum(tensor.numel() * tensor.element_size() for tensor, cut in zip(tensors, split, strict=True) if cut)
    step = max(1, min(rows // 2, rows * piece_bytes // max(total, 1)))

    def part(start: int, stop: int) -> list[Any]:
        cut = [tensor[start:stop] if here else tensor for tensor, here in zip(tensors, split, strict=True)]
        return list(trees.unpack(tree, cut))

    for start, stop in ((0, step), (rows - step, rows)):
        alone = trees.pack(single(part(start, stop)))[1]
        for one, whole in zip(alone, eager, strict=True):
            if not _are_alike(one, whole[start:stop]):
                raise Inseparable("a part of the input does not give the same part of the output")
    exact = list(eager)
    for start, stop in _ranges(rows, step):
        pieces = trees.pack(double(part(start, stop)))[1]
        for number, (whole, piece) in enumerate(zip(eager, pieces, strict=True)):
            if exact[number] is whole:
                if _is_exact(whole[start:stop], piece):
                    continue
                exact[number] = torch.empty_like(whole, dtype=_wide_dtype(whole))
                exact[number][:start].copy_(whole[:start])
            exact[number][start:stop].copy_(piece)
        # Before the next ones are made: together they would take twice the memory.
        del pieces, piece
    return exact


def _ranges(rows: int, step: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def _is_exact(eager: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether every element is the same number, or NaN in both."""
    if exact.shape != eager.shape:
        return False
    same = exact == eager
    return bool(same.all()) or bool(same.logical_or_((exact != exact) & (eager != eager)).all())


def _wide_dtype(tensor: torch.Tensor) -> torch.dtype:
    if tensor.is_complex():
        return torch.complex128
    return torch.float64 if tensor.is_floating_point() else tensor.dtype


def _are_alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, two)
    # The rows at both ends are enough to see a dependence on rows before or after, and spare the memory.
    return all(_are_close(one[ends], two[ends]) for ends in (slice(None, _END_ROWS), slice(-_END_ROWS, None)))


def _are_close(one: torch.Tensor, two: torch.Tensor) -> bool:
    first, second = one.double(), two.double()
    finite = torch.isfinite(first) & torch.isfinite(second)
    gap = torch.where(finite, first - second, 0.0).norm()
    scale = torch.where(finite, second, 0.0).norm()
    eps = 64 * torch.finfo(one.dtype).eps
    return bool(gap <= max(_SAME, eps) * scale + torch.finfo(torch.float64).tiny)
