"""The edges of an operation, parameters drawn anew, and what tolerances tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge import Candidate, Outcome, Problem, Settings
from kforge.worker.judge import distributions
from kforge.worker.judge.compare import Tolerance, compare, make_leaf
from kforge.worker.judge.distributions import Extremes
from kforge.worker.judge.reference import _nudge, _redraw, _stretch
from kforge.worker.judge.rounding_grants import _finite

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.cpu

EVERYTHING = Extremes(special=True, equal=True, all_arguments=True)
UNTIMED = Settings(compile_baseline=False, timing_seconds=0)


# -- extreme inputs ----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.sampled_from([torch.float32, torch.float16]),
    st.integers(0, 2**40),
)
@settings(deadline=None, max_examples=40)
def test_extremes_keep_shape_and_dtype_and_come_again(shape: list[int], dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    (changed,) = EVERYTHING.apply([x], seed)
    assert changed.shape == x.shape
    assert changed.dtype == x.dtype
    assert torch.equal(EVERYTHING.apply([x], seed)[0].nan_to_num(7.0), changed.nan_to_num(7.0))


def test_nobody_knows_which_entry_reaches_which_edge() -> None:
    x = torch.randn(64, 8)
    places = {tuple(torch.isnan(EVERYTHING.apply([x], seed)[0]).nonzero().flatten().tolist()) for seed in range(8)}
    assert len(places) == 8


@pytest.mark.parametrize(
    "x", [torch.randn((1 << 17) + 3), torch.randn(30, 4, 8, 8).to(memory_format=torch.channels_last)]
)
def test_of_very_many_entries_neighbours_reach_the_same_edge(x: torch.Tensor) -> None:
    (changed,) = EVERYTHING.apply([x], 5)
    assert changed.stride() == x.stride()
    assert changed.shape == x.shape
    for reached in (changed.isnan(), changed == torch.inf, changed == -torch.inf, changed > 900, changed < -900):
        assert bool(reached.any())
    assert bool((changed == x).any())


def test_one_entry_of_timed_inputs_reaches_an_edge() -> None:
    entries = set()
    for seed in range(30):
        x, y = torch.randn(32, 8), torch.randn(32, 8)
        before = x.clone()
        entry = EVERYTHING.mark([x, y], seed)
        others = [number for number in range(32) if number != entry]
        assert torch.equal(x[others], before[others])
        entries.add(entry)
    assert len(entries) > 10


def test_an_argument_that_is_constant_is_shifted_by_many_values() -> None:
    state, x = torch.zeros(4, 8), torch.randn(4, 8)
    shifted, moved = distributions.apply("shifted", [state, x], seed=3)
    assert len(set(shifted.flatten().tolist())) == 32
    assert torch.equal(moved, x + 0.5)


def test_every_edge_is_reached_and_only_the_first_argument_is_special() -> None:
    x, y, index = torch.randn(64, 8), torch.randn(64, 8), torch.arange(64)
    one, two, three = EVERYTHING.apply([x, y, index], 5)
    assert torch.isnan(one).any()
    assert {float("inf"), float("-inf")} <= set(one.reshape(-1).tolist())
    assert float(one.nan_to_num(0, 0, 0).abs().max()) > 999
    assert (one == 0).all(dim=1).any()
    assert torch.isfinite(two).all()
    assert torch.equal(three, index)
    everywhere = Extremes(True, True, True, nan_everywhere=True).apply([x, y, index], 5)
    assert torch.isnan(everywhere[1]).any()
    assert not torch.isinf(everywhere[1]).any()
    first_only = Extremes(special=False, equal=True, all_arguments=False).apply([x, y, index], 5)
    assert torch.isfinite(first_only[0]).all()
    assert torch.equal(first_only[1], y)


def test_of_arguments_that_are_multiplied_only_the_first_is_large() -> None:
    """Rounding of sums of large products would decide what an exponential behind them gives."""
    level = distributions.levels_of_extremes(choosing=False, multiplying=True)[0]
    one, two = level.apply([torch.randn(40, 8), torch.randn(40, 8)], 3)
    assert float(one.nan_to_num().abs().max()) > 500
    assert float(two.nan_to_num().abs().max()) < 10
    assert not torch.isinf(one).any()
    assert torch.isnan(one).any()
    assert torch.isnan(two).any()


def test_where_an_element_is_chosen_nothing_is_equal_or_special() -> None:
    assert all(not level.equal and not level.special for level in distributions.levels_of_extremes(choosing=True))
    assert EVERYTHING in distributions.levels_of_extremes(choosing=False)


def problem(forward: str, inputs: str = "torch.randn(256, 64)") -> Problem:
    return Problem.from_source(f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
""")


def cases(judge: Any, forward: str, inputs: str = "torch.randn(256, 64)") -> tuple[Any, list[str]]:
    session = judge.session(problem(forward, inputs), UNTIMED)
    return session.cases, [case.distribution for case in session.cases.cases_to_check(5)]


@pytest.mark.parametrize(
    ("forward", "special", "said"),
    [
        ("return torch.softmax(x, -1)", True, ""),
        ("return x.sum()", False, "NaN and infinities"),
        ("return x.argmax(-1)", False, "NaN and infinities"),
        ("return x / x.norm()", False, "NaN and infinities"),
    ],
)
def test_the_reference_says_what_it_takes(judge: Any, forward: str, special: bool, said: str) -> None:
    found, names = cases(judge, forward)
    assert names[-1] == "extremes"
    assert found.extremes[0].special is special
    assert any(said in reason for reason in found.unchecked) if said else found.unchecked == []


def test_a_reference_that_takes_no_extremes_is_checked_without(judge: Any) -> None:
    forward = "assert float(x.abs().max()) < 30\n        return x * 2"
    found, names = cases(judge, forward)
    assert "extremes" not in names
    assert any("extreme inputs" in reason for reason in found.unchecked)


def test_integers_only_have_no_edges_of_this_kind(judge: Any) -> None:
    _, names = cases(judge, "return x * 2 + 1", "torch.randint(0, 9, (64, 64))")
    assert "extremes" not in names


@pytest.mark.toolchain
def test_a_wrong_result_at_an_edge_names_the_edge(judge: Any) -> None:
    folder = Path(__file__).parents[2] / "catalogue"
    wrong = Candidate((folder / "hacks/semantics_softmax_without_maximum.py").read_text())
    verdict = judge.evaluate(Problem.from_file(folder / "problems/softmax_rows.py"), wrong, UNTIMED)
    assert verdict.outcome is Outcome.MISMATCH
    assert "in random order, as the problem gives them, scaled to 300" in verdict.detail


# -- parameters --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.integers(8, 300), st.booleans(), st.sampled_from([32, 1 << 26]))
@settings(deadline=None, max_examples=60)
def test_nothing_of_a_parameter_stays(seed: int, count: int, signed: bool, at_once: int) -> None:
    value = torch.randn(count, generator=torch.Generator().manual_seed(seed)) * 0.1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kforge.worker.judge.reference._REDRAWN_AT_ONCE", at_once)
        moved = _redraw(value, torch.Generator().manual_seed(seed + 1), signed)
    assert moved.dtype == value.dtype
    for fact in (torch.norm, torch.sum, torch.max, torch.min):
        assert not torch.isclose(fact(moved), fact(value), rtol=1e-6)
    # Two of so many may be equal by chance.
    assert len(set(moved.tolist()) & set(value.tolist())) <= 2


@given(st.integers(0, 2**31))
@settings(deadline=None, max_examples=30)
def test_signs_change_only_where_they_may(seed: int) -> None:
    value = torch.rand(400) + 0.1
    generator = torch.Generator().manual_seed(seed)
    assert bool((_redraw(value, generator, signed=False) >= 0).all())
    assert bool((_redraw(value, generator, signed=True) < 0).any())
    assert bool((_redraw(torch.ones(400), generator, signed=True) < 0).any())


@given(st.integers(0, 2**31), st.sampled_from([torch.bfloat16, torch.float16]), st.booleans())
@settings(deadline=None, max_examples=30)
def test_a_few_elements_of_a_short_dtype_are_much_larger(seed: int, dtype: torch.dtype, positive: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    value = torch.rand(4096, generator=generator) + (0.1 if positive else -0.5)
    usual, short = (_redraw(value.to(kind), generator, signed=False).double() for kind in (torch.float32, dtype))
    # Of integers with one step for all, that step decides how coarse they are.
    assert usual.abs().max() < 4 * usual.square().mean().sqrt()
    assert short.abs().max() > 4 * short.square().mean().sqrt()
    assert not positive or bool((short >= 0).all())


@given(st.integers(0, 2**31), st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
@settings(deadline=None, max_examples=30)
def test_a_nudge_moves_few_elements_and_in_a_short_dtype_far(seed: int, dtype: torch.dtype) -> None:
    value = (torch.randn(1 << 14, generator=torch.Generator().manual_seed(seed)) * 0.05).to(dtype)
    moved = _nudge(value, torch.Generator().manual_seed(seed + 1))
    change = (moved.double() - value.double()).abs()
    assert 0 < int((change > 0).sum()) < len(value) / 256
    error = float(change.square().sum().sqrt() / value.double().square().sum().sqrt())
    assert error > (0.02 if dtype != torch.float32 else 0.001)


@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(1, 9))
@settings(deadline=None, max_examples=60)
def test_special_values_lie_at_both_ends_too(seed: int, entries: int, length: int) -> None:
    change = distributions._SPECIAL["with a NaN"]
    changed = change(torch.zeros(entries, length, 2), torch.Generator().manual_seed(seed)).reshape(entries, -1)
    assert changed.isnan().sum(dim=1).tolist() == [1] * entries
    assert int(changed[:, 0].isnan().sum()) >= entries // 4
    assert int(changed[:, -1].isnan().sum()) >= entries // 4


@pytest.mark.parametrize("shape", [(), (3,), (4, 5)])
def test_what_is_granted_to_complex_numbers_has_the_form_of_their_leaf(shape: tuple[int, ...]) -> None:
    value = torch.randn(shape, dtype=torch.complex64)
    leaf = make_leaf(value, None)
    assert torch.equal(_finite(value), leaf.exact.double())
    assert torch.equal(_finite(value.conj()), make_leaf(value.conj(), None).exact.double())


def test_zeros_and_infinities_of_a_constant_buffer_stay() -> None:
    mask = torch.full((16, 16), float("-inf")).triu(1)
    assert torch.equal(_stretch(mask, torch.Generator().manual_seed(1)), mask)
    table = torch.rand(64)
    assert not torch.equal(_stretch(table, torch.Generator().manual_seed(1)), table)


def test_a_reference_that_needs_positive_parameters_keeps_them(judge: Any) -> None:
    source = problem("return torch.log(self.scale) + x").source
    source = source.replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.scale = nn.Parameter(torch.rand(64) + 0.5)\n\n    def forward",
    )
    found = judge.session(Problem.from_source(source), UNTIMED).cases
    assert any("another sign" in reason for reason in found.unchecked)
    assert bool((found.timed_state["scale"] > 0).all())
    assert not torch.equal(found.timed_state["scale"], found.initial_state["scale"])


# -- tolerances --------------------------------------------------------------------------------------------------------


def difference(exact: torch.Tensor, dtype: torch.dtype, actual: torch.Tensor) -> str:
    leaf = make_leaf(exact.to(dtype), exact)
    return compare(leaf, actual.to(dtype), Tolerance({}), "y").message


@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 5), (torch.float16, 7), (torch.float32, 10)])
def test_fewer_bits_than_the_dtype_has_are_told(dtype: torch.dtype, bits: int) -> None:
    torch.manual_seed(0)
    exact = torch.randn(256, 256, dtype=torch.float64)
    coarse = exact * (1 + (torch.rand_like(exact) - 0.5) * 2.0**-bits)
    assert difference(exact, dtype, exact) == ""
    assert "precision" in difference(exact, dtype, coarse)


def test_a_row_of_large_elements_excuses_no_other() -> None:
    torch.manual_seed(0)
    exact = torch.randn(64, 64, dtype=torch.float64)
    exact[0] *= 1e9
    actual = exact.float().double()
    actual[1:] += 0.1
    assert difference(exact, torch.float32, actual) != ""


def test_a_special_value_that_is_lost_is_no_matter_of_precision() -> None:
    exact = torch.randn(8, 64, dtype=torch.float64)
    exact[2, 5] = torch.nan
    got = exact.float()
    got[2, 5] = 0.0
    message = compare(make_leaf(exact.float(), exact), got, Tolerance({}), "it").message
    assert "expected nan, got 0" in message
    assert "precision" not in message


def test_a_few_large_elements_of_a_row_do_not_hide_the_rest() -> None:
    torch.manual_seed(0)
    exact = torch.randn(64, 64, dtype=torch.float64)
    exact[:, 0] = 1e7
    actual = exact.clone()
    actual[:, 1:] = 0
    assert "of their own size" in difference(exact, torch.float32, actual)


def test_what_rounding_does_to_a_stochastic_reference_is_known(judge: Any) -> None:
    """Its result has no float64 to be held against; that it multiplies every rounding is seen by nudging its inputs."""
    source = (
        "import torch\nimport torch.nn as nn\n"
        "class Model(nn.Module):\n    def forward(self, x):\n        s = torch.sigmoid(x + torch.randn_like(x))\n"
        "        for _ in range(14):\n            s = 3.9 * s * (1 - s)\n        return s\n"
        "def get_inputs():\n    return [torch.randn(64, 256)]\ndef get_init_inputs():\n    return []\n"
    )
    other = source.replace("class Model(", "class ModelNew(").replace("3.9 * s * (1 - s)", "s * (3.9 * (1 - s))")
    settings = Settings(compile_baseline=False, timing_seconds=0, policy="any")
    right = judge.evaluate(Problem.from_source(source), Candidate(other), settings)
    assert right.outcome is Outcome.CORRECT, right.detail
    wrong = judge.evaluate(Problem.from_source(source), Candidate(other.replace("range(14)", "range(13)")), settings)
    assert wrong.outcome is Outcome.MISMATCH


@pytest.mark.parametrize(
    ("last", "draws"),
    [("y", False), ("torch.nn.functional.dropout(y)", True), ("y + torch.rand(()) * 1e-2", True)],
)
def test_sums_in_an_order_of_chance_are_no_drawn_numbers(judge: Any, last: str, draws: bool) -> None:
    """Atomic additions differ from run to run under one seed too, by what rounding does; float64 says what is right."""
    source = (ROOT / "tests/catalogue/problems/sum_by_chance.py").read_text()
    source = source.replace("return torch.relu(total - 44.0)", f"y = torch.relu(total)\n        return {last}")
    cases = judge.session(Problem.from_source(source.replace("4096", "64")), Settings()).cases
    assert cases.stochastic is draws
    assert any("draws random numbers" in line for line in cases.unchecked) is draws


# -- what rounding explains --------------------------------------------------------------------------------------------

CANCELLED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(512, 64) / 22)

    def forward(self, x):
        return torch.relu(x @ self.weight)

def get_inputs():
    x = torch.randn(256, 512)
    return [x]

def get_init_inputs():
    return []

KFORGE = {"distributions": ["natural"]}
"""


def test_a_row_of_which_cancellation_leaves_next_to_nothing_is_granted_its_rounding(judge: Any) -> None:
    """Behind a ReLU a row may hold one tiny number: what is left of large terms, with their rounding."""
    from kforge.worker.judge.rounding_grants import compare_outputs

    cases = judge.session(Problem.from_source(CANCELLED, "cancelled"), UNTIMED).cases
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(512, 64, generator=generator) / 22
    weight[:, 1:] = -weight[:, 1:].abs()
    x = torch.randn(256, 512, generator=generator).abs()
    # Of the first row a millionth is left in its first element, and nothing in the others.
    row, column = x[0].double(), weight[:, 0].double()
    x[0] = (row - (row @ column - 2e-5) * column / column.square().sum()).float()
    state = {"weight": weight}
    expected = cases._expect([x], state, 0, False)
    exact = expected.leaves[0].exact
    assert 1e-5 < float(exact[0, 0]) < 4e-5
    off = exact.float()
    off[0, 0] += 2e-7
    plain = compare(expected.leaves[0], off, Tolerance({}), "it")
    granted = compare_outputs(cases, expected, [x], state, 0, [off], Tolerance({}))
    assert not granted[0].message, (plain.message, granted[0].message)
    off[0, 0] = 0.0
    assert compare_outputs(cases, expected, [x], state, 0, [off], Tolerance({}))[0].message, "that is not rounding"
