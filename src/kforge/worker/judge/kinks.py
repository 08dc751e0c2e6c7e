"""Gradients at kinks: where rounding decides on which side of a ReLU's, a clamp's or a maximum's edge a value lies.

There a gradient jumps, and two honest programs differ. What it may jump by is found with float64: everything is moved
a little, by what rounding does, one way and the other. A smooth function's two changes cancel; a jump does not, since
it is on one side only. Looked at only where a gradient seems wrong. At the edges of an operation, where a gradient may
multiply rounding by any number, what rounding does to it is granted as well, as often as eager's own error is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.judge.compare import Expected, OutputDifference, Tolerance, compare
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.reference import State

_DRAWS = 8
_GRANTED = 2.0
"""Several jumps may add up in a program that cancel in a draw."""
_FACTOR = 4.0
_NOTHING = 1e-9
_MOVED = 16 * torch.finfo(torch.float32).eps
"""How far arguments and parameters are moved, of their size: what a long sum in float32 makes of its terms."""
_LOW_PRECISIONS = {"tf32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def compare_outputs(
    cases: ProblemCases,
    expected: Expected,
    arguments: list[Any],
    state: State,
    seed: int,
    outputs: Sequence[torch.Tensor],
    tolerance: Tolerance,
) -> list[OutputDifference]:
    """Hold all tensors of a call's output against what is expected; where gradients seem wrong, their jumps count."""
    names = cases.output_names
    pairs = list(zip(expected.leaves, outputs, names, strict=True))
    differences = [compare(leaf, got, tolerance, name) for leaf, got, name in pairs]
    wrong = [number for number, difference in enumerate(differences) if difference.message]
    if not wrong or min(wrong) < cases.forward_count:
        return differences
    jumps = _jumps(cases, arguments, state, seed, tolerance.precision)
    if jumps is None:
        return differences
    for number in wrong:
        leaf, got, name = pairs[number]
        jump, change = jumps[number]
        # What is as good as zero is known of extreme inputs only.
        granted = jump.add_(change, alpha=_FACTOR).add_(_nothing(leaf.exact)) if leaf.negligible else jump
        differences[number] = compare(replace(leaf, jumps=granted), got, tolerance, name)
    return differences


def _jumps(
    cases: ProblemCases, arguments: list[Any], state: State, seed: int, precision: str
) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """For each tensor of the output: what its elements may jump by, and by how much rounding changes them at most.

    None where the reference cannot say.
    """
    reference = cases.reference
    moved = _LOW_PRECISIONS.get(precision, _MOVED)
    rounded = max((torch.finfo(like.dtype).eps for like in cases.outputs if like.is_floating_point()), default=0.0)
    double = not cases.stochastic and not cases.large

    def run(draw: int, sign: float) -> list[torch.Tensor]:
        number = cases.derive("kink", draw)
        outputs = reference.run_moved(arguments, state, seed, number, (sign * moved, sign * rounded), double)
        return [_finite(tensor) for tensor in trees.pack(outputs)[1]]

    try:
        base = run(0, 0.0)
        largest = [(torch.zeros_like(tensor), torch.zeros_like(tensor)) for tensor in base]
        for draw in range(_DRAWS):
            for (jump, change), one, two, usual in zip(largest, run(draw, 1.0), run(draw, -1.0), base, strict=True):
                torch.maximum(change, (one - usual).abs_(), out=change)
                torch.maximum(jump, one.add_(two).sub_(usual, alpha=2).abs_(), out=jump)
    except torch.OutOfMemoryError:
        raise
    except Exception:
        return None
    return [(jump.mul_(_GRANTED), change) for jump, change in largest]


def _nothing(exact: torch.Tensor) -> float:
    """What is next to nothing beside a gradient's typical element."""
    return _NOTHING * float(exact.abs().nan_to_num(nan=0.0, posinf=0.0).median()) if exact.numel() else 0.0


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
