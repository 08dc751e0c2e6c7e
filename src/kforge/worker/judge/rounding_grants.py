"""Where rounding decides: what a few elements may be off by before a program is called wrong.

A row of an output may be next to nothing because large terms cancel, as behind a ReLU: then neither its own size nor
what eager happened to get wrong there says what rounding does. What becomes of it with inputs and parameters a last
place off does say so, and is granted to elements. To the norm it is granted where it is larger than what is allowed: a
network that normalises by the variance of two samples multiplies rounding, and eager may be exact by chance.

An operator may lose places of its own, as 1 + erf(x) does in a GELU far below zero. So eager's worst error of several
runs with everything a last place off is granted as well, as often as that of its one run.

At a ReLU's, a clamp's or a maximum's edge, rounding decides on which side a value lies. There a gradient jumps, and two
honest programs differ. What it may jump by is found with float64: everything is moved a little, by what rounding does,
one way and the other. A smooth function's two changes cancel; a jump does not, since it is on one side only. At the
edges of an operation, where a gradient may multiply rounding by any number, what rounding does to it is granted as
well, as often as eager's own error is.

All of it is looked at only where a result seems wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.judge.compare import Expected, ExpectedLeaf, OutputDifference, Tolerance, as_real, compare
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.reference import State

_DRAWS, _CANCELLATION_DRAWS = 8, 8
_STANDARD_DEVIATIONS = 32.0
"""Of what a last place does to an element, estimated from a few draws: sums in another order are off by one or two, a
convolution by another algorithm by more in a few of many million elements.
"""
_SHORT_DEVIATIONS = 8.0
"""The same in a short dtype, where what counts is the rounding of each result: a few of a million are off by five."""
_FULL = (torch.float32, torch.float64)
_GRANTED = 2.0
"""Several jumps may add up in a program that cancel in a draw."""
_FACTOR = 4.0
_UNLIKE = 4.0
"""How much less than usual a single draw may say that rounding does."""
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
    if not wrong:
        return differences
    if min(wrong) < cases.forward_count:
        return _excuse_cancellation(cases, arguments, state, seed, pairs, differences, tolerance)
    jumps = _jumps(cases, arguments, state, seed, tolerance.precision)
    if jumps is None:
        return differences
    for number in wrong:
        leaf, got, name = pairs[number]
        jump, change = jumps[number]
        if leaf.eager.dtype in _FULL:
            # Two jumps may cancel where both happen. What is smooth changes by next to nothing, in full precision.
            jump = torch.maximum(jump, change * _GRANTED)
        # What is as good as zero is known of extreme inputs only.
        granted = jump.add_(change, alpha=_FACTOR).add_(_nothing(leaf.exact)) if leaf.negligible else jump
        differences[number] = compare(replace(leaf, granted=granted), got, tolerance, name)
    return differences


def _excuse_cancellation(
    cases: ProblemCases,
    arguments: list[Any],
    state: State,
    seed: int,
    pairs: list[tuple[ExpectedLeaf, torch.Tensor, str]],
    differences: list[OutputDifference],
    tolerance: Tolerance,
) -> list[OutputDifference]:
    """The differences, with rounding granted to every element of forward's outputs whose norm is fine, or is what
    rounding makes of it.
    """
    wrong = [number for number in range(cases.forward_count) if differences[number].message]
    if cases.stochastic or cases.large or not all(_may_be_rounding(pairs[n][0], differences[n]) for n in wrong):
        return differences
    last_places = {number: torch.finfo(pairs[number][0].eager.dtype).eps for number in wrong}
    last_place = max(last_places.values())
    # The noise is that of the shortest dtype among them; what it does is a share of that in a longer one.
    shares = {number: eps / last_place for number, eps in last_places.items()}
    worst: list[torch.Tensor] = []
    try:
        exact = _run_moved(cases, arguments, state, seed, 0, (0.0, 0.0))
        squares = [torch.zeros_like(tensor) for tensor in exact]
        for draw in range(_CANCELLATION_DRAWS):
            moved = _run_moved(cases, arguments, state, seed, draw, (last_place, last_place))
            for square, one, usual in zip(squares, moved, exact, strict=True):
                square.add_((one - usual).square_())
            norms = {n: shares[n] * _rms_norm(squares[n], exact[n], draw + 1) for n in wrong}
            unlike = _UNLIKE if draw == 0 else 1.0
            if not all(_is_of_rounding(differences[n], unlike * norms[n]) for n in wrong):
                return differences
        if all(pairs[number][0].eager.dtype is torch.float32 for number in wrong):
            worst = _worst_errors(cases, arguments, state, seed, exact)
    except Exception as error:
        # Where it does not fit into the device's memory either, the difference stands.
        return [_with_reason(difference, error) for difference in differences]
    granted = list(differences)
    for number in wrong:
        leaf, got, name = pairs[number]
        deviations = _STANDARD_DEVIATIONS if leaf.eager.dtype in _FULL else _SHORT_DEVIATIONS
        allowed = squares[number].div_(_CANCELLATION_DRAWS).sqrt_().mul_(deviations * shares[number])
        if worst:
            allowed = torch.maximum(allowed, worst[number].mul_(_FACTOR))
        excused = differences[number].norm > differences[number].norm_limit
        own = max(leaf.eager_norm, norms[number]) if excused else leaf.eager_norm
        granted[number] = compare(replace(leaf, eager_norm=own, granted=allowed), got, tolerance, name)
    return granted


def _worst_errors(
    cases: ProblemCases, arguments: list[Any], state: State, seed: int, exact: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The worst error of each element in the reference's own dtype, over runs with everything a last place off.

    An operator may lose places inside, as a GELU does far below zero, where 1 + erf(x) is next to nothing: float64 does
    not show that, and of one run by eager it is chance which elements do.
    """
    last_place = torch.finfo(torch.float32).eps
    worst = [torch.zeros_like(tensor) for tensor in exact]
    for draw in range(_CANCELLATION_DRAWS):
        moved = _run_moved(cases, arguments, state, seed, draw, (last_place, last_place), double=False)
        for largest, one, usual in zip(worst, moved, exact, strict=True):
            torch.maximum(largest, one.sub_(usual).abs_(), out=largest)
    return worst


def _with_reason(difference: OutputDifference, error: Exception) -> OutputDifference:
    """A difference that says why nobody looked at what rounding does to it."""
    if not difference.message:
        return difference
    reason = f"what rounding does to it could not be looked at ({type(error).__name__})"
    return replace(difference, message=f"{difference.message}\n  {reason}")


def _may_be_rounding(leaf: ExpectedLeaf, difference: OutputDifference) -> bool:
    """Whether it is worth while to look at what rounding does. In a short dtype it is so large that an excuse for the
    norm would hide a lower precision.
    """
    if not leaf.eager.is_floating_point() or not math.isfinite(difference.norm):
        return False
    return difference.norm <= difference.norm_limit or leaf.eager.dtype in _FULL


def _is_of_rounding(difference: OutputDifference, noise_norm: float) -> bool:
    """Whether an output is no further off, in the norm, than is allowed; or than rounding makes of it, where that alone
    is more than is allowed.
    """
    if difference.norm <= difference.norm_limit:
        return True
    return noise_norm > difference.norm_limit and difference.norm <= _FACTOR * noise_norm


def _rms_norm(square: torch.Tensor, exact: torch.Tensor, draws: int) -> float:
    """The typical relative norm of errors, from the sum of their squares over some draws."""
    size = float(torch.linalg.vector_norm(exact))
    return (float(square.sum()) / draws) ** 0.5 / size if size else 0.0


def _run_moved(
    cases: ProblemCases,
    arguments: list[Any],
    state: State,
    seed: int,
    draw: int,
    sizes: tuple[float, float],
    double: bool = True,
) -> list[torch.Tensor]:
    """The reference's outputs with everything moved by these sizes, in float64; what is not finite as zero."""
    outputs = cases.reference.run_moved(arguments, state, seed, cases.derive("moved", draw), sizes, double)
    return [_finite(tensor) for tensor in trees.pack(outputs)[1]]


def _jumps(
    cases: ProblemCases, arguments: list[Any], state: State, seed: int, precision: str
) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """For each tensor of the output: what its elements may jump by, and by how much rounding changes them at most.

    None where the reference cannot say.
    """
    moved = _LOW_PRECISIONS.get(precision, _MOVED)
    rounded = max((torch.finfo(like.dtype).eps for like in cases.outputs if like.is_floating_point()), default=0.0)
    double = not cases.stochastic and not cases.large

    def run(draw: int, sign: float) -> list[torch.Tensor]:
        return _run_moved(cases, arguments, state, seed, draw, (sign * moved, sign * rounded), double)

    try:
        base = run(0, 0.0)
        largest = [(torch.zeros_like(tensor), torch.zeros_like(tensor)) for tensor in base]
        for draw in range(_DRAWS):
            for (jump, change), one, two, usual in zip(largest, run(draw, 1.0), run(draw, -1.0), base, strict=True):
                torch.maximum(change, (one - usual).abs_(), out=change)
                torch.maximum(change, (two - usual).abs_(), out=change)
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
    """In float64, a complex number as two real ones, as leaves hold it; what is not finite as zero."""
    return as_real(tensor.detach()).double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
