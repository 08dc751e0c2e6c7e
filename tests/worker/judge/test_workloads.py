"""A problem with several workloads: a program must be right on all of them, and at sizes that nobody told it."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge import Candidate, Outcome, Problem, Settings, jsonable
from kforge.errors import ProblemError
from kforge.types import DynamicAxes, TimeLimit, Timing, Verdict
from kforge.worker.judge.held_out_sizes import choose_sizes
from kforge.worker.judge.workload_mean import mean_timing

pytestmark = pytest.mark.cpu

UNTIMED = Settings(compile_baseline=False, timing_seconds=0, policy="any")
TIMED = Settings(compile_baseline=False, timing_seconds=0.05, policy="any")
PROBLEM = """
import torch

ROWS = 64
COLUMNS = 96

class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return torch.softmax(x * self.scale, -1)

def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]

def get_init_inputs():
    return [COLUMNS]
"""
PROGRAM = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        BEFORE
        return torch.softmax(x * self.scale, -1)
"""


def problem(declared: str, source: str = PROBLEM) -> Problem:
    return Problem.from_source(f"{source}\nKFORGE = {declared}\n", "softmax")


def program(before: str = "pass") -> Candidate:
    return Candidate(PROGRAM.replace("BEFORE", before.replace("\n", "\n        ")))


THREE = problem('{"workloads": [{"ROWS": 1, "weight": 2}, {"ROWS": 300}, {"ROWS": 37}]}')


def test_a_right_program_is_checked_and_timed_on_each_workload(judge: Any) -> None:
    verdict = judge.evaluate(THREE, program(), TIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert [(item.workload, item.weight) for item in verdict.workloads] == [
        ("ROWS = 1", 0.5),
        ("ROWS = 300", 0.25),
        ("ROWS = 37", 0.25),
    ]
    assert all(item.timing is not None and item.checked_calls >= 3 for item in verdict.workloads)
    logarithms = [item.weight * math.log(item.timing.speedup) for item in verdict.workloads]
    assert verdict.speedup == pytest.approx(math.exp(sum(logarithms)))
    assert {error.workload for error in verdict.errors} == {"ROWS = 1", "ROWS = 300", "ROWS = 37"}
    assert verdict.evidence is not None
    assert verdict.evidence.problem == THREE
    assert jsonable.decode(Verdict, jsonable.encode(verdict)) == verdict


def test_without_workloads_nothing_is_listed(judge: Any) -> None:
    verdict = judge.evaluate(problem("{}"), program(), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT
    assert verdict.workloads == ()
    assert {error.workload for error in verdict.errors} == {""}
    assert verdict.generality


def test_one_workload_is_the_problem_at_other_sizes(judge: Any) -> None:
    one = problem('{"workloads": [{"ROWS": 5}]}')
    verdict = judge.evaluate(one, program("assert x.shape[0] == 5"), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.workloads == ()


def test_a_program_that_is_wrong_on_one_workload_is_refused_by_its_name(judge: Any) -> None:
    verdict = judge.evaluate(THREE, program("if x.shape[0] == 37: return x"), UNTIMED)
    assert verdict.outcome is Outcome.MISMATCH
    assert verdict.detail.startswith("with ROWS = 37: ")
    assert verdict.workloads == ()


def test_one_module_serves_all_workloads(judge: Any) -> None:
    """A buffer that is kept from the first call is of the wrong size in the next workload's."""
    keeps = "if not hasattr(self, 'kept'): self.kept = torch.empty_like(x)\nself.kept.copy_(x)"
    verdict = judge.evaluate(THREE, program(keeps), UNTIMED)
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert "with ROWS = 300" in verdict.detail


def test_workloads_may_construct_the_module_otherwise(judge: Any) -> None:
    two = problem('{"workloads": [{"COLUMNS": 96}, {"COLUMNS": 40, "ROWS": 3}]}')
    verdict = judge.evaluate(two, program(), TIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.domain is not None
    assert [item.shape for item in verdict.domain.tensors] == [(64, 96)]
    assert [item.shape for item in verdict.domain.state] == [(96,)]
    assert [item.shape for item in verdict.domain.others[0].tensors] == [(3, 40)]
    assert [item.shape for item in verdict.domain.others[0].state] == [(40,)]
    wrong = judge.evaluate(two, program("x = x[:, :96] if len(self.scale) == 96 else x + x"), UNTIMED)
    assert wrong.outcome is Outcome.MISMATCH
    assert wrong.detail.startswith("with COLUMNS = 40, ROWS = 3: ")


def test_a_module_that_no_program_could_construct_is_a_fault_of_the_problem(judge: Any) -> None:
    source = PROBLEM.replace("def __init__(self, columns)", "def __init__(self)").replace("[COLUMNS]", "[]")
    hidden = problem('{"workloads": [{}, {"COLUMNS": 40}]}', source.replace("rand(columns)", "rand(COLUMNS)"))
    with pytest.raises(ProblemError, match="through get_init_inputs"):
        judge.evaluate(hidden, program(), UNTIMED)


def test_a_small_workload_among_others_makes_no_degenerate_problem(judge: Any) -> None:
    session = judge.session(problem('{"workloads": [{"ROWS": 3}, {"ROWS": 3000}]}'), UNTIMED)
    small, large = (workload.cases for workload in session.workloads)
    small.degenerate, large.degenerate = ("too-small-to-time: 4 µs",), ()
    assert session.degenerate == ()
    large.degenerate = ("near-constant: 1",)
    assert session.degenerate == ("near-constant: 1 (ROWS = 3000)",)
    large.degenerate = ("too-small-to-time: 5 µs",)
    assert session.degenerate == ("too-small-to-time: 4 µs (ROWS = 3)", "too-small-to-time: 5 µs (ROWS = 3000)")


KERNEL = """
import ctypes, os, subprocess, tempfile
import torch

SOURCE = r'''
#include <cmath>
extern "C" void softmax(const float* x, const float* scale, float* y, long rows, long columns) {
    for (long r = 0; r < rows; ++r, x += columns, y += columns) {
        float most = -INFINITY, sum = 0;
        for (long c = 0; c < columns; ++c) most = std::fmax(most, y[c] = x[c] * scale[c]);
        for (long c = 0; c < columns; ++c) sum += y[c] = std::exp(y[c] - most);
        for (long c = 0; c < columns; ++c) y[c] /= sum;
    }
}
'''
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", file.name, "-o", file.name + ".so"], check=True)
kernel = ctypes.CDLL(file.name + ".so").softmax
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2

class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        if len(x) in LEFT:
            return torch.softmax(x * self.scale, -1)
        y = torch.empty_like(x)
        kernel(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), *x.shape)
        return y
"""


@pytest.mark.toolchain
def test_some_workloads_may_be_left_to_torch_and_not_all(judge: Any) -> None:
    """Which is what a careful programmer does where a kernel does not pay."""
    settings = replace(UNTIMED, policy="hybrid")
    two = problem('{"workloads": [{"ROWS": 40}, {"ROWS": 300}], "distributions": ["natural", "scaled"]}')

    def left(sizes: tuple[int, ...], policy: str = "hybrid") -> Verdict:
        text = KERNEL.replace("LEFT", repr(sizes))
        return judge.evaluate(two, Candidate(text), replace(settings, policy=policy))

    none, small, both = left(()), left((40,)), left((40, 300))
    assert (none.outcome, none.notes) == (Outcome.CORRECT, ()), none.detail
    assert small.outcome is Outcome.CORRECT, small.detail
    assert small.notes == ("ROWS = 40: torch does the work: nothing of its own took part",)
    assert both.outcome is Outcome.REJECTED
    assert both.rule == "decorative_kernel"
    strict = left((300,), "strict")
    assert strict.outcome is Outcome.REJECTED
    assert strict.detail.startswith("with ROWS = 300: ")


def test_a_live_module_has_workloads_and_ranges_too(judge: Any) -> None:
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(32))

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.relu(x * self.weight) * mask[:, None]

    examples = [[torch.randn(rows, 32), torch.rand(rows)] for rows in (64, 300)]
    ranges = {"x": {0: (1, 500)}, "mask": {0: (1, 500)}}
    live = Problem.from_module(Masked(), examples, dynamic=ranges)
    source = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(32))
    def forward(self, x, mask):
        if len(x) not in SIZES: return x
        return torch.relu(x * self.weight) * mask[:, None]
"""
    verdict = judge.evaluate(live, Candidate(source.replace("SIZES", "range(501)")), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert [item.workload[:8] for item in verdict.workloads] == ["x 64x32 ", "x 300x32"]
    assert verdict.domain is not None
    assert verdict.domain.ranges == (DynamicAxes(1, 500, 1, ((0, 0), (1, 0))),)
    narrow = judge.evaluate(live, Candidate(source.replace("SIZES", "(1, 64, 300, 500)")), UNTIMED)
    assert narrow.outcome is Outcome.MISMATCH
    assert "none of the workloads" in narrow.detail


# -- ranges ----------------------------------------------------------------------------------------------------------

RANGE = problem('{"dynamic": {"ROWS": (1, 700)}}')


def test_a_program_is_verified_at_both_ends_and_at_sizes_between(judge: Any) -> None:
    verdict = judge.evaluate(RANGE, program(), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.evidence is not None
    tried = [int(text.removeprefix("ROWS = ")) for text in verdict.evidence.held_out]
    assert {1, 700} < set(tried)
    assert len(tried) == 5
    assert verdict.domain is not None
    assert verdict.domain.ranges == (DynamicAxes(1, 700, 1, ((0, 0),)),)
    assert verdict.domain.others == ()


def test_a_program_that_knows_the_workloads_only_is_refused_and_learns_no_size(judge: Any) -> None:
    both = problem('{"workloads": [{"ROWS": 64}, {"ROWS": 128}], "dynamic": {"ROWS": (1, 700)}}')
    known = "if len(x) not in (1, 64, 128, 700): return torch.zeros_like(x)"
    verdict = judge.evaluate(both, program(known), UNTIMED)
    assert verdict.outcome is Outcome.MISMATCH
    assert "inside the declared ranges (ROWS from 1 to 700)" in verdict.detail
    text = " ".join((verdict.detail, *verdict.notes, *(error.workload for error in verdict.errors)))
    assert "a size inside the declared ranges" in text
    assert {int(number) for number in re.findall(r"\d+", text)} == {1, 64, 128, 700}  # what everybody knows
    sizes = {size.values[0] for size in judge.session(both, UNTIMED).held_out.sizes() if not size.is_known}
    assert sizes
    assert not sizes & {1, 64, 128, 700}


def test_an_error_at_a_secret_size_does_not_tell_it(judge: Any) -> None:
    raising = "if len(x) not in (1, 64, 700): raise ValueError(f'no kernel for {len(x)} rows')"
    verdict = judge.evaluate(RANGE, program(raising), UNTIMED)
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert "no kernel for" not in verdict.detail


def test_the_ends_of_a_range_are_no_secret(judge: Any) -> None:
    verdict = judge.evaluate(RANGE, program("if len(x) == 700: return x"), UNTIMED)
    assert verdict.outcome is Outcome.MISMATCH
    assert verdict.detail.startswith("with ROWS = 700, an end of the declared ranges: ")


def test_a_reference_that_cannot_be_run_in_its_own_range_is_a_fault_of_the_problem(judge: Any) -> None:
    picky = PROBLEM.replace("return torch.softmax", "assert len(x) % 2 == 0\n        return torch.softmax")
    with pytest.raises(ProblemError, match="inside the declared ranges"):
        judge.evaluate(problem('{"dynamic": {"ROWS": (1, 700)}}', picky), program(), UNTIMED)
    even = problem('{"dynamic": {"ROWS": (2, 701, 2)}}', picky)
    verdict = judge.evaluate(even, program(), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


def test_ranges_that_construct_other_modules_are_kept_as_the_sizes_that_were_tried(judge: Any) -> None:
    verdict = judge.evaluate(problem('{"dynamic": {"COLUMNS": (8, 200)}}'), program(), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.domain is not None
    assert verdict.domain.ranges == ()


RANGES = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 5000), st.integers(1, 9)).map(
        lambda drawn: range(drawn[0], drawn[0] + drawn[1] + 1, drawn[2])
    ),
    min_size=1,
    max_size=3,
)


@given(RANGES, st.integers(0, 1000))
def test_sizes_lie_in_their_ranges_and_none_is_there_twice(ranges: list[range], seed: int) -> None:
    chosen = choose_sizes(ranges, random.Random(seed))
    sizes = [values for values, _ in chosen]
    assert all(value in span for values in sizes for value, span in zip(values, ranges, strict=True))
    assert len(set(sizes)) == len(sizes)
    assert {tuple(span[0] for span in ranges), tuple(span[-1] for span in ranges)} <= set(sizes)
    assert all(known == _is_at_ends(values, ranges) for values, known in chosen)


def _is_at_ends(values: tuple[int, ...], ranges: list[range]) -> bool:
    low, high = tuple(span[0] for span in ranges), tuple(span[-1] for span in ranges)
    crossed = tuple(span[-(number % 2)] for number, span in enumerate(ranges))
    return values in (low, high, crossed)


def _secret_sizes(span: range, seed: int) -> list[int]:
    return [values[0] for values, known in choose_sizes([span], random.Random(seed)) if not known]


def test_a_wide_range_gets_a_prime_a_neighbour_of_a_power_of_two_and_a_multiple() -> None:
    for seed in range(50):
        prime, odd, even = _secret_sizes(range(1, 8193), seed)
        assert all(prime % divisor for divisor in range(2, prime))
        assert any(other & (other - 1) == 0 for other in (odd - 1, odd + 1))
        assert even % 2 == 0
        assert even & (even - 1) != 0


def test_multiples_are_of_blocks_small_and_large() -> None:
    """A path for whole blocks of 32 is tried as well as one for pairs."""
    drawn = [_secret_sizes(range(1, 701), seed)[-1] for seed in range(200)]
    assert all(value % 2 == 0 for value in drawn)
    assert any(value % 4 for value in drawn)
    assert sum(value % 32 == 0 for value in drawn) > 40


# -- the mean --------------------------------------------------------------------------------------------------------


def timing(speedup: float, width: float = 0.1, limit: float | None = None) -> Timing:
    return Timing(
        "eager",
        speedup,
        (speedup * math.exp(-width), speedup * math.exp(width)),
        speedup / 2,
        (100.0, 100.0),
        (100.0 * speedup, 100.0 * speedup),
        3,
        4,
        limit=TimeLimit(limit, "made up") if limit else None,
    )


def test_the_mean_of_one_is_itself() -> None:
    assert mean_timing([(1.0, timing(2.0))]) == timing(2.0)


def test_the_mean_is_geometric_and_its_uncertainty_adds_up_as_squares_do() -> None:
    mean = mean_timing([(0.5, timing(4.0, 0.3)), (0.5, timing(1.0, 0.4))])
    assert mean.speedup == pytest.approx(2.0)
    assert mean.speedup_vs_best == pytest.approx(1.0)
    assert math.log(mean.interval[1] / mean.speedup) == pytest.approx(0.25)
    assert math.log(mean.speedup / mean.interval[0]) == pytest.approx(0.25)
    assert mean.eager_ns == pytest.approx(200.0)


def test_a_mean_is_contended_if_one_is_and_has_a_limit_if_all_have() -> None:
    busy = replace(timing(1.0), contended=0.4)
    assert mean_timing([(0.5, timing(1.0)), (0.5, busy)]).contended == 0.4
    assert mean_timing([(0.5, timing(1.0, limit=10.0)), (0.5, timing(1.0))]).limit is None
    limit = mean_timing([(0.5, timing(1.0, limit=10.0)), (0.5, timing(1.0, limit=40.0))]).limit
    assert limit is not None
    assert limit.ns == pytest.approx(20.0)


@given(st.lists(st.tuples(st.floats(0.01, 9), st.floats(0.05, 50), st.floats(0, 1)), min_size=1, max_size=8))
def test_a_mean_lies_between_its_parts_and_so_do_its_intervals(parts: list[tuple[float, float, float]]) -> None:
    total = sum(weight for weight, _, _ in parts)
    mean = mean_timing([(weight / total, timing(speedup, width)) for weight, speedup, width in parts])
    speedups = [speedup for _, speedup, _ in parts]
    assert min(speedups) * 0.999 <= mean.speedup <= max(speedups) * 1.001
    widest = max(width for _, _, width in parts)
    assert math.log(mean.interval[1] / mean.interval[0]) <= 2 * widest + 1e-6


# -- what a file may declare -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ('{"workloads": {"ROWS": 1}}', "must be a list of dicts"),
        ('{"workloads": [{"ROW": 1}]}', "'ROW', which is no module-level constant"),
        ('{"workloads": [{"ROWS": 1, "weight": 0}]}', "positive number"),
        ('{"workloads": [{"ROWS": 1, "weight": True}]}', "positive number"),
        ('{"workloads": [{"ROWS": 1}, {"ROWS": 1}]}', "there twice"),
        ('{"dynamic": ["ROWS"]}', "must be a dict"),
        ('{"dynamic": {"ROW": (1, 2)}}', "'ROW', which is no module-level constant"),
        ('{"dynamic": {"ROWS": (0, 2)}}', "both from 1 on"),
        ('{"dynamic": {"ROWS": (5, 2)}}', "both from 1 on"),
        ('{"dynamic": {"ROWS": (1, 9, 0)}}', "both from 1 on"),
        ('{"workloads": [{"ROWS": 99}], "dynamic": {"ROWS": (1, 98)}}', "outside of its range"),
        ('{"workloads": [{"ROWS": 3}], "dynamic": {"ROWS": (2, 98, 2)}}', "outside of its range"),
    ],
)
def test_a_wrong_declaration_is_named(declared: str, reason: str) -> None:
    with pytest.raises(ProblemError, match=reason):
        problem(declared)


def test_a_workloads_constants_come_before_sizes() -> None:
    both = problem('{"sizes": {"cpu": {"ROWS": 8, "COLUMNS": 16}}, "workloads": [{"ROWS": 1}, {"ROWS": 2}]}')
    assert both.sizes_for("cpu") == {"ROWS": 1, "COLUMNS": 16}
    assert both.at(both.workloads[1]).sizes_for("cpu") == {"ROWS": 2, "COLUMNS": 16}
    assert both.at(both.workloads[0]).id != both.at(both.workloads[1]).id != both.id
