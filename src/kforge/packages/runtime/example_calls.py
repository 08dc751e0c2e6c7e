"""Calls like those that were verified, with random numbers: for warming up, for graphs of references, for tests."""

from __future__ import annotations

from typing import Any

import torch

from .guard import VerifiedCall

_NUMBERS: dict[str, list[Any]] = {"b": [False, True], "i": [1, 3, 2, 7], "f": [1.0, 0.37, -2.5, 3.0], "s": [""]}
"""Values for arguments that may have any."""


def example_of(call: VerifiedCall, where: torch.device, pick: int = 0) -> tuple[list[Any], list[torch.Tensor]]:
    """Leaves and state that are laid out as in a verified call; floating numbers at random, all others 0.

    `pick` is one of the lengths of its ranges.
    """
    return _leaves(call, where, pick), [_tensor(layout, call, where, pick) for layout in call.state]


def count_of_examples(call: VerifiedCall) -> int:
    """How many examples show what may vary in a call."""
    return 4 if call.ranges or any(spec[0] == "*" for spec in call.leaves) else 1


def has_lengths_of(state: list[torch.Tensor], call: VerifiedCall) -> bool:
    """Whether a module's tensors are as long as in a verified call."""
    return all(tuple(tensor.shape) == layout.shape for tensor, layout in zip(state, call.state))  # noqa: B905


def examples_of(call: VerifiedCall) -> list[list[Any]]:
    """Leaves without values, as in a verified call: at both ends of its ranges, and at lengths between."""
    return [_leaves(call, torch.device("meta"), pick) for pick in range(count_of_examples(call))]


def _leaves(call: VerifiedCall, where: torch.device, pick: int) -> list[Any]:
    leaves: list[Any] = []
    for spec in call.leaves:
        if spec[0] == "T":
            leaves.append(_tensor(call.tensors[spec[1]], call, where, pick))
        elif spec[0] == "n":
            leaves.append(None)
        elif spec[0] == "D":
            leaves.append(getattr(torch, spec[1]))
        elif spec[0] == "*":
            values = _NUMBERS[spec[1]]
            leaves.append(values[pick % len(values)])
        else:
            leaves.append({"b": bool, "i": int, "f": float, "c": complex, "s": str}[spec[0]](spec[1]))
    return leaves


def _tensor(layout: Any, call: VerifiedCall, where: torch.device, pick: int) -> torch.Tensor:
    shape = tuple(length if length >= 0 else _length(call.ranges[-1 - length], pick) for length in layout.shape)
    if layout.stride is not None:
        made = torch.empty_strided(shape, layout.stride, dtype=layout.dtype, device=where)
    else:
        made = torch.empty(shape, dtype=layout.dtype, device=where)
    return made.uniform_(-1, 1) if made.is_floating_point() else made.zero_()


def _length(span: tuple[int, int, int], pick: int) -> int:
    """A length of a range: its lowest, its highest, or one between that is no round number if there is one."""
    values = range(span[0], span[1] + 1, span[2])
    places = (0, len(values) - 1, len(values) // 3 | 1, 2 * len(values) // 3 | 1)
    return values[min(places[pick], len(values) - 1)]
