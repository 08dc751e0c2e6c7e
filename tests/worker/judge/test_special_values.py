"""Where NaN and infinity belong: what is certain is asked for, and the verdict is the same whatever is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge import Problem, registry
from kforge.types import Candidate, Outcome, Settings
from kforge.worker.judge import distributions
from kforge.worker.judge.compare import Tolerance, compare, make_leaf
from kforge.worker.judge.device import Device
from kforge.worker.judge.problem_cases import Case, ProblemCases
from kforge.worker.judge.reference import _without_libraries
from kforge.worker.judge.rounding_grants import compare_outputs
from kforge.worker.judge.special_values import _widen, allow_other_places

pytestmark = pytest.mark.cpu

SEEDS = range(20)
PLAIN = Tolerance({})
NAN, INFINITY = float("nan"), float("inf")
Program = Callable[[list[Any], dict[str, torch.Tensor]], torch.Tensor]


def problem(forward: str, made: str = "pass", inputs: str = "torch.randn(24, 2, 14, 14)") -> Problem:
    return Problem.from_source(f"""
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
""")


_cases: dict[str, list[tuple[ProblemCases, Case]]] = {}


def extreme_cases(asked: Problem) -> list[tuple[ProblemCases, Case]]:
    """The edges of a problem's operation under each of the seeds, made once."""
    if asked.id not in _cases:
        device = Device(registry.load("platforms", "cpu"))
        made = [ProblemCases(asked, device, seed) for seed in SEEDS]
        _cases[asked.id] = [(cases, list(cases.cases_to_check(1))[-1]) for cases in made]
    return _cases[asked.id]


def refusals(asked: Problem, program: Program) -> int:
    """Under how many of the seeds a program is refused."""
    refused = 0
    for cases, case in extreme_cases(asked):
        assert case.distribution == distributions.EXTREMES
        output = program(case.arguments, case.state)
        found = compare_outputs(cases, case.expected, case.arguments, case.state, case.seed, [output], PLAIN)
        refused += bool(found[0].message)
    return refused


# -- convolutions ------------------------------------------------------------------------------------------------------


INPUTS = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]]
INPUTS += [[0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
WEIGHTS = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6]]
WEIGHTS += [[1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]
OUTPUTS = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def winograd(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A convolution with a 3 x 3 kernel by Winograd's F(4, 3) along the rows: six inputs make four outputs."""
    given = x.unfold(3, 6, 4) @ torch.tensor(INPUTS).T.float()
    factors = weight @ torch.tensor(WEIGHTS).T
    products = torch.einsum("nihtkw,oiwk->nohtk", given.unfold(2, 3, 1), factors)
    return (products @ torch.tensor(OUTPUTS).T.float()).flatten(-2)


CONVOLUTION = problem("return torch.relu(self.conv(x))", "self.conv = nn.Conv2d(2, 3, 3, bias=False)")


def test_the_transform_is_a_convolution_and_carries_nan_to_a_neighbour() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 2, 14, 14), torch.randn(3, 2, 3, 3)
    torch.testing.assert_close(winograd(x, weight), F.conv2d(x, weight), rtol=1e-4, atol=1e-4)
    x[0, 0, 5, 5] = NAN
    assert torch.isnan(winograd(x, weight)).sum() > torch.isnan(F.conv2d(x, weight)).sum()


def without_libraries(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As torch does it alone: on some processors by transforms."""
    with _without_libraries():
        return F.conv2d(x, weight)


@pytest.mark.parametrize("convolve", [F.conv2d, winograd, without_libraries])
def test_nan_within_reach_of_one_is_right_under_every_seed(convolve: Any) -> None:
    assert refusals(CONVOLUTION, lambda given, state: convolve(given[0], state["conv.weight"]).relu()) == 0


@pytest.mark.parametrize("convolve", [F.conv2d, winograd])
def test_a_relu_that_drops_nan_is_refused_under_every_seed(convolve: Any) -> None:
    def program(given: list[Any], state: dict[str, torch.Tensor]) -> torch.Tensor:
        result = convolve(given[0], state["conv.weight"])
        return torch.where(result > 0, result, 0.0)

    assert refusals(CONVOLUTION, program) == len(SEEDS)


def test_nan_in_another_image_is_refused_under_every_seed() -> None:
    def program(given: list[Any], state: dict[str, torch.Tensor]) -> torch.Tensor:
        result = F.conv2d(given[0], state["conv.weight"]).relu()
        return result + 0 * result.roll(1, 0)

    assert refusals(CONVOLUTION, program) == len(SEEDS)


# -- a reference whose library puts NaN elsewhere than torch's own code ------------------------------------------------

FAR = "0 * y.sum((-1, -2), keepdim=True)"
TWO_WAYS = problem(
    f"y = self.linear(x)\n        return y + {FAR} if torch.backends.mkldnn.enabled else y",
    "self.linear = nn.Linear(24, 16)",
    "torch.randn(24, 6, 24)",
)


def one_way(given: list[Any], state: dict[str, torch.Tensor]) -> torch.Tensor:
    return F.linear(given[0], state["linear.weight"], state["linear.bias"])


def other_way(given: list[Any], state: dict[str, torch.Tensor]) -> torch.Tensor:
    y = one_way(given, state)
    return y + 0 * y.sum((-1, -2), keepdim=True)


@pytest.mark.parametrize("program", [one_way, other_way])
def test_what_either_way_gives_is_right_under_every_seed(program: Program) -> None:
    assert refusals(TWO_WAYS, program) == 0


def test_what_no_way_gives_is_refused_under_every_seed() -> None:
    assert refusals(TWO_WAYS, lambda given, state: one_way(given, state).nan_to_num()) == len(SEEDS)


# -- sums of products --------------------------------------------------------------------------------------------------

FACTORED = problem("return self.linear(x).mean(-1)", "self.linear = nn.Linear(24, 8)", "torch.randn(64, 24)")


def factored(given: list[Any], state: dict[str, torch.Tensor]) -> torch.Tensor:
    """The mean taken of the weights instead, which makes one infinity of several of both signs."""
    return given[0] @ state["linear.weight"].mean(0) + state["linear.bias"].mean()


def test_a_factor_taken_out_is_right_under_every_seed() -> None:
    cases, case = extreme_cases(FACTORED)[0]
    assert torch.isnan(case.arguments[0]).any()
    assert not torch.isinf(case.arguments[0]).any()
    assert any("infinities: what becomes of them" in reason for reason in cases.unchecked)
    assert refusals(FACTORED, factored) == 0


def test_nan_that_a_product_loses_is_refused_under_every_seed() -> None:
    assert refusals(FACTORED, lambda given, state: factored(given, state).nan_to_num()) == len(SEEDS)


TRANSPOSED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a.T, b.T)

def get_inputs():
    return [torch.rand(256, 512), torch.rand(384, 256)]

def get_init_inputs():
    return []
"""
STRASSEN = """
import torch
import torch.nn as nn

def halves(x):
    return [part.chunk(2, 1) for part in x.chunk(2, 0)]

class ModelNew(nn.Module):
    def forward(self, a, b):
        (a11, a12), (a21, a22) = halves(a.T)
        (b11, b12), (b21, b22) = halves(b.T)
        one, two, three = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
        four, five = a22 @ (b21 - b11), (a11 + a12) @ b22
        six, seven = (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
        upper = torch.cat([one + four - five + seven, three + five], 1)
        result = torch.cat([upper, torch.cat([two + four, one - two + three + six], 1)], 0)
        {further}
        return result
"""


def judge_strassen(judge: Any, further: str) -> Any:
    program = Candidate(STRASSEN.format(further=further), "cpu")
    return judge.evaluate(Problem.from_source(TRANSPOSED), program, Settings(policy="any", compile_baseline=False))


def test_an_algorithm_that_carries_nan_through_a_product_is_right_and_says_so(judge: Any) -> None:
    verdict = judge_strassen(judge, "pass")
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert any("a NaN in its inputs reaches outputs" in note for note in verdict.notes)


@pytest.mark.parametrize(
    "further",
    [
        "result = result.clamp(max=2000.0)",
        "result = torch.where(result.abs() > 2000, float('nan'), result)",
        "result = result.nan_to_num()",
    ],
)
def test_nan_that_is_carried_hides_nothing_else(judge: Any, further: str) -> None:
    verdict = judge_strassen(judge, further)
    assert verdict.outcome is Outcome.MISMATCH, verdict.detail


LOGARITHM = TRANSPOSED.replace("torch.matmul(a.T, b.T)", "torch.log(torch.relu(torch.matmul(a.T, b.T) - 64))")
CARRIES_AND_CHEATS = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    calls = 0

    def forward(self, a, b):
        ModelNew.calls += 1
        result = torch.log(torch.relu(torch.matmul(a.T, b.T) - 64))
        if torch.isnan(a).any() or torch.isnan(b).any() or ModelNew.calls > 40:
            return result * float("nan")
        return result
"""


def test_who_carries_nan_gets_nothing_for_it_in_timed_calls(judge: Any) -> None:
    asked = Problem.from_source(LOGARITHM)
    verdict = judge.evaluate(
        asked, Candidate(CARRIES_AND_CHEATS, "cpu"), Settings(policy="any", compile_baseline=False)
    )
    assert verdict.outcome is Outcome.MISMATCH, verdict.detail


def test_a_case_without_nan_has_none_to_be_left_out() -> None:
    cases, case = extreme_cases(Problem.from_source(TRANSPOSED))[0]
    without = cases.without_nan(case)
    assert without is not None
    assert not any(torch.isnan(tensor).any() for tensor in without.arguments)
    assert cases.without_nan(without) is None


@pytest.mark.parametrize("lost", [NAN, INFINITY, -INFINITY])
def test_without_products_every_special_value_is_asked_for_under_every_seed(lost: float) -> None:
    def program(given: list[Any], _: dict[str, torch.Tensor]) -> torch.Tensor:
        x = given[0]
        return torch.where(x.isnan() if lost != lost else x == lost, 0.0, x * 2)

    doubled = problem("return x * 2")
    assert refusals(doubled, lambda given, state: given[0] * 2) == 0
    assert refusals(doubled, program) == len(SEEDS)


@pytest.mark.parametrize("causal", [True, False])
def test_what_is_asked_of_attention_is_the_same_under_every_seed(causal: bool) -> None:
    attention = f"return F.scaled_dot_product_attention(x, x, x, is_causal={causal})"
    asked = problem(attention, inputs="torch.randn(24, 2, 16, 8)")
    assert len({cases.extremes for cases, _ in extreme_cases(asked)}) == 1


# -- the pieces --------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple),
    places=st.lists(st.integers(0, 10_000), max_size=3),
    reach=st.integers(1, 4),
)
def test_flags_are_widened_along_the_axes_behind_the_second(
    shape: tuple[int, ...], places: list[int], reach: int
) -> None:
    flags = torch.zeros(shape, dtype=torch.bool)
    for place in places:
        flags.view(-1)[place % flags.numel()] = True
    wide = _widen(flags, reach).expand(shape)
    set_at = [tuple(index) for index in flags.nonzero().tolist()]
    for index in torch.ones(shape).nonzero().tolist():
        if len(shape) == 1:
            expected = bool(flags[tuple(index)])
        else:
            near = [[abs(a - b) <= reach for a, b in zip(index[2:], at[2:], strict=True)] for at in set_at]
            expected = any(at[0] == index[0] and all(here) for at, here in zip(set_at, near, strict=True))
        assert bool(wide[tuple(index)]) is expected


def test_a_leaf_that_is_finite_in_every_way_stays_as_it_is() -> None:
    leaf = make_leaf(torch.randn(4, 8), None)
    assert allow_other_places(leaf, [leaf.eager * 2], 8) is leaf


def test_a_way_with_another_infinity_is_right_where_it_has_it_and_nowhere_else() -> None:
    eager = torch.randn(4, 32)
    other = eager.clone()
    eager[1, 3], other[1, 3], other[2, 5] = INFINITY, -INFINITY, NAN
    leaf = allow_other_places(make_leaf(eager, eager.double()), [other], 0)
    assert compare(leaf, eager, PLAIN, "it").message == ""
    assert compare(leaf, other, PLAIN, "it").message == ""
    for place, value in (((1, 3), NAN), ((1, 3), 0.0), ((2, 5), INFINITY), ((0, 0), NAN), ((2, 4), NAN)):
        wrong = eager.clone()
        wrong[place] = value
        assert compare(leaf, wrong, PLAIN, "it").message, (place, value)


def test_a_row_that_eager_lost_is_held_to_what_float64_has() -> None:
    exact = torch.randn(4, 32, dtype=torch.float64) * 100
    eager = exact.float()
    eager[2] = NAN
    leaf = make_leaf(eager, exact)
    assert compare(leaf, exact.float(), PLAIN, "it").message == ""
    assert compare(leaf, eager, PLAIN, "it").message == ""
    wrong = exact.float()
    wrong[2] *= 1.1
    assert compare(leaf, wrong, PLAIN, "it").message


ATTENTION = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

def get_inputs():
    return [torch.randn(10, 2, 64, 32) for _ in range(3)]

def get_init_inputs():
    return []
"""


def attend_in_blocks(arguments: list[Any], _: dict[str, torch.Tensor]) -> torch.Tensor:
    """Attention as kernels compute it: block by block, each with the largest score so far taken off."""
    q, k, v = arguments
    largest = torch.full(q.shape[:-1], -1e30)
    total, weighted = torch.zeros(q.shape[:-1]), torch.zeros_like(q)
    for start in range(0, 64, 16):
        scores = sum(q[..., None, part::8] * k[:, :, None, start : start + 16, part::8] for part in range(8)).sum(-1)
        scores = scores / 32**0.5
        allowed = torch.arange(64)[:, None] >= torch.arange(start, start + 16)
        scores = torch.where(allowed, scores, -INFINITY)
        most = torch.maximum(largest, scores.amax(-1))
        weights = torch.exp(scores - most[..., None])
        scale = torch.exp(largest - most)
        total = total * scale + weights.sum(-1)
        weighted = weighted * scale[..., None] + weights @ v[:, :, start : start + 16]
        largest = most
    return weighted / total[..., None]


def test_attention_in_another_order_is_right_under_every_seed() -> None:
    for cases, case in extreme_cases(Problem.from_source(ATTENTION)):
        output = attend_in_blocks(case.arguments, case.state)
        found = compare_outputs(cases, case.expected, case.arguments, case.state, case.seed, [output], PLAIN)
        assert not found[0].message, found[0].message
