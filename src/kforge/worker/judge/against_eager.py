"""Is the output of one call right? Against eager on the same inputs first; against float64 where that seems wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.judge.compare import Tolerance, compare, make_leaf
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.rounding_grants import compare_outputs


def difference_from_eager(
    cases: ProblemCases,
    arguments: list[Any],
    seed: int,
    distribution: str,
    outputs: list[torch.Tensor],
    limits: Tolerance,
) -> str:
    """What is wrong with these outputs of a call with the timed state; empty if nothing is."""
    _, expected = trees.pack(cases.reference.run(arguments, cases.timed_state, seed))
    known = cases.errors_under(distribution)
    for number, (want, got, errors) in enumerate(zip(expected, outputs, known, strict=True)):
        # Eager stands in for float64 here, with the errors it showed under the same distribution.
        norm, worst, typical = errors
        leaf = replace(make_leaf(want, None), eager_norm=norm, eager_worst=worst, typical=typical)
        if compare(leaf, got, limits, cases.output_names[number]).message:
            return difference_from_exact(cases, arguments, seed, distribution, outputs, limits)
    return ""


def difference_from_exact(
    cases: ProblemCases,
    arguments: list[Any],
    seed: int,
    distribution: str,
    outputs: list[torch.Tensor],
    limits: Tolerance,
) -> str:
    """What is wrong with the outputs against float64, or what comes nearest to it; empty if nothing is."""
    expected = cases.expect_timed(arguments, seed, distribution)
    differences = compare_outputs(cases, expected, arguments, cases.timed_state, seed, outputs, limits)
    return next((item.message for item in differences if item.message), "")
