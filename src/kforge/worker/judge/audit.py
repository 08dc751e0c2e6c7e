"""Is the problem itself sound? A degenerate one can be "solved" by a constant, and a win on it never counts."""

from __future__ import annotations

import random
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.judge.reference import Reference, State

SMALLEST_SECONDS = 20e-6
"""Below this an eager call is dispatch overhead, not work."""
_SAME = 1e-6
_ROUNDING = 1e-5
"""What sums in no fixed order may differ by from run to run, as those of atomics do: no reason not to judge them."""
_NEAR_ZERO = 1e-6
_MOST_PARAMETERS = 48
_TOO_SMALL = "too-small-to-time"


def audit(reference: Reference, arguments: list[Any], state: State, seconds: float, seed: int) -> list[str]:
    """The reasons why a problem is degenerate, each starting with its name; empty for a sound one."""
    reasons: list[str] = []
    output = _tensors(reference.run(arguments, state, seed))
    again = _tensors(reference.run(arguments, state, seed))
    if not _are_close(output, again, _ROUNDING):
        reasons.append("non-deterministic: two runs on the same inputs under the same seed differ")
    reasons += _audit_output(output)
    reasons += _audit_inputs(reference, arguments, state, seed, output)
    reasons += _audit_parameters(reference, arguments, state, seed, output)
    if seconds < SMALLEST_SECONDS:
        reasons.append(f"{_TOO_SMALL}: an eager call takes {seconds * 1e6:.0f} µs, mostly dispatch")
    return reasons


def _audit_output(output: list[torch.Tensor]) -> list[str]:
    reals = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in output if t.numel()]
    finite = [t.double()[torch.isfinite(t.double())] for t in reals]
    values = torch.cat([t.reshape(-1) for t in finite]) if finite else torch.zeros(0)
    if values.numel() == 0:
        return ["near-constant: the output has no finite value"]
    largest = float(values.abs().max())
    if largest < _NEAR_ZERO:
        return [f"near-constant: the output is zero everywhere (largest {largest:.1e})"]
    if values.numel() > 1 and float(values.std()) < _SAME * largest:
        return [f"near-constant: every output element is {float(values[0]):.6g}"]
    return []


def _audit_inputs(
    reference: Reference, arguments: list[Any], state: State, seed: int, output: list[torch.Tensor]
) -> list[str]:
    tree, tensors = trees.pack(arguments)
    if not tensors and _are_close(output, _tensors(reference.run(arguments, state, seed + 1))):
        return ["input-independent: there is no tensor among the inputs, so the output is a constant"]
    fresh = trees.pack(reference.inputs(seed + 1))[1]
    reasons = []
    for number, tensor in enumerate(tensors):
        if number >= len(fresh) or fresh[number].shape != tensor.shape or torch.equal(fresh[number], tensor):
            continue
        changed = [fresh[i] if i == number else other for i, other in enumerate(tensors)]
        try:
            other = _tensors(reference.run(list(trees.unpack(tree, changed)), state, seed))
        except Exception:
            # Inputs that only make sense together cannot be exchanged one by one.
            continue
        if _are_close(output, other):
            which = f" {number}" if len(tensors) > 1 else ""
            reasons.append(f"input-independent: fresh values of input{which} leave the output unchanged")
    return reasons


def _audit_parameters(
    reference: Reference, arguments: list[Any], state: State, seed: int, output: list[torch.Tensor]
) -> list[str]:
    moved = reference.randomise_state(state, seed)
    reasons = []
    names = sorted(reference.movable_names())
    if len(names) > _MOST_PARAMETERS:
        names = random.Random(seed).sample(names, _MOST_PARAMETERS)
    for name in names:
        if reference.training and name.rsplit(".", 1)[-1] in ("running_mean", "running_var"):
            continue
        one = {other: moved[other] if moved[other] is moved[name] else state[other] for other in state}
        try:
            other = _tensors(reference.run(arguments, one, seed))
        except Exception:
            # It has an influence, if only that.
            continue
        if _are_close(output, other):
            reasons.append(f"parameter-insensitive: parameter {name} cannot influence the output")
    return reasons


def _tensors(output: Any) -> list[torch.Tensor]:
    tree, tensors = trees.pack(output)
    numbers = [torch.tensor(float(value)) for value in _numbers(tree)]
    return [tensor.detach().clone() for tensor in tensors] + numbers


def _numbers(tree: Any) -> list[float]:
    if tree[0] in ("i", "f", "b"):
        return [float(tree[1])]
    return [number for item in tree[1] for number in _numbers(item)] if tree[0] in ("l", "u") else []


def is_of_time(reason: str) -> bool:
    """Whether a reason only says that the problem cannot be timed."""
    return reason.startswith(_TOO_SMALL)


def _are_close(first: list[torch.Tensor], second: list[torch.Tensor], rounding: float = 0.0) -> bool:
    """Whether two outputs are equal but for rounding: hardly any, or so much and a few last places of their dtype."""
    if [t.shape for t in first] != [t.shape for t in second]:
        return False
    for one, two in zip(first, second, strict=True):
        if one.dtype.is_floating_point or one.dtype.is_complex:
            scale = float(torch.nan_to_num(one).abs().max()) if one.numel() else 0.0
            same = max(rounding, 4 * torch.finfo(one.dtype).eps) if rounding else _SAME
            if not torch.allclose(one, two, rtol=same, atol=same * scale, equal_nan=True):
                return False
        elif not torch.equal(one, two):
            return False
    return True
