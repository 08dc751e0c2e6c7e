"""What rounding excuses, and what it does not: outputs of several dtypes, and problems that multiply rounding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kforge.worker import trees
from kforge.worker.judge.compare import Expected, Tolerance, make_leaf
from kforge.worker.judge.rounding_grants import compare_outputs

pytestmark = pytest.mark.cpu

SIDE = 64


def judged(exact: list[torch.Tensor], eager: list[torch.Tensor], got: list[torch.Tensor], factor: float) -> list[str]:
    """What is said of each output, where noise of a size changes each element by `factor` times as much of it."""

    def run_moved(arguments: Any, state: Any, seed: int, draw: int, sizes: tuple[float, float], double: bool) -> Any:
        dice = torch.Generator().manual_seed(draw)
        noise = [torch.rand(item.shape, generator=dice, dtype=torch.float64) * 2 - 1 for item in exact]
        return [item * (1 + factor * sizes[0] * each) for item, each in zip(exact, noise, strict=True)]

    cases: Any = SimpleNamespace(
        output_names=[f"output {number}" for number in range(len(exact))],
        forward_count=len(exact),
        stochastic=False,
        large=False,
        reference=SimpleNamespace(run_moved=run_moved),
        derive=lambda word, number: number,
    )
    leaves = tuple(make_leaf(one, two) for one, two in zip(eager, exact, strict=True))
    expected = Expected(trees.pack(eager)[0], tuple(eager), leaves)
    found = compare_outputs(cases, expected, [], {}, 0, got, Tolerance({}, ""))
    return [difference.message for difference in found]


def drawn(seed: int) -> torch.Tensor:
    return torch.randn(SIDE, SIDE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def off(exact: torch.Tensor, share: float) -> torch.Tensor:
    """Every element off by up to this share of it."""
    noise = torch.rand(exact.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64) * 2 - 1
    return exact * (1 + share * noise)


def test_a_problem_that_multiplies_rounding_excuses_what_rounding_makes_of_it() -> None:
    exact = drawn(1)
    assert judged([exact], [exact.float()], [off(exact, 1e-2).float()], factor=1e5) == [""]


@pytest.mark.parametrize("factor", [1.0, 100.0])
def test_a_sound_problem_excuses_no_lower_precision(factor: float) -> None:
    exact = drawn(1)
    (said,) = judged([exact], [exact.float()], [off(exact, 4e-3).float()], factor)
    assert "wrong" in said


def test_an_output_in_a_short_dtype_excuses_nothing_in_a_longer_one() -> None:
    """One element of the first is spoiled, so that bfloat16 is looked at; the second is in half precision."""
    short, full = drawn(1), drawn(2)
    spoiled = short.bfloat16().clone()
    spoiled[0, 0] *= 1.05
    said = judged([short, full], [short.bfloat16(), full.float()], [spoiled, off(full, 4e-3).float()], factor=1.0)
    assert said[1]


def test_a_result_that_is_not_finite_is_not_looked_at_again() -> None:
    exact = drawn(1)
    broken = exact.float().clone()
    broken[3, 3] = torch.inf
    (said,) = judged([exact], [exact.float()], [broken], factor=1e5)
    assert said
