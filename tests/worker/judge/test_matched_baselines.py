"""The best baseline is one that a candidate is allowed to match: TF32 counts where lower precision is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge import Candidate, Outcome, Problem, Settings, registry
from kforge.cli.render import _facts, flat
from kforge.types import BaselineTime, Report, Verdict
from kforge.worker.judge.baselines import Baselines, wanted_baselines
from kforge.worker.judge.judge import Judge
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.reference import Reference
from kforge.worker.matrix_precision import allows

pytestmark = pytest.mark.cpu

PRODUCT = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(48, 300), torch.randn(300, 40)]

def get_init_inputs():
    return []
"""
SAME = PRODUCT.split("def get_inputs")[0].replace("class Model(", "class ModelNew(")
PRECISIONS = ("", "float32", "tf32", "float16", "bfloat16")


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    """A judge on the processor that believes it has TF32, which makes the problem three times as fast."""
    cpu = registry.load("platforms", "cpu")
    monkeypatch.setattr(cpu, "baselines", ("eager", "tf32", "compile"), raising=False)
    measure = Baselines._measure

    def measured(self: Baselines, name: str) -> BaselineTime:
        seen = measure(self, name)
        ratio = {"tf32": 3.0, "compile_tf32": 4.0, "compile": 2.0}[name]
        return BaselineTime(name, ratio, seen.note, seen.precision)

    monkeypatch.setattr(Baselines, "_measure", measured)
    with Judge("cpu") as made:
        yield made


def short_floats(self: Reference, arguments: list[Any], state: Any, seed: int) -> Any:
    """What TF32 does: the factors with eleven bits, the sum in float32."""
    return self.run([(given.view(torch.int32) & ~0xFFF).view(torch.float32) for given in arguments], state, seed)


def verdict_of(judge: Judge, **settings: Any) -> Verdict:
    options = {"compile_baseline": True, "timing_seconds": 0.05, "seeds": 2, "policy": "any"} | settings
    verdict = judge.evaluate(Problem.from_source(PRODUCT, "product"), Candidate(SAME, "cpu"), Settings(**options))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    return verdict


@pytest.mark.toolchain
@pytest.mark.slow
def test_tf32_is_the_best_baseline_only_where_it_is_allowed(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reference, "run_in_tf32", short_floats)
    strict = verdict_of(judge)
    assert strict.timing is not None
    by_name = {item.name: item for item in strict.timing.baselines}
    assert by_name["tf32"].precision == "tf32"
    assert "compile_tf32" not in by_name, "nobody could use it"
    assert strict.speedup_vs_best == pytest.approx(strict.timing.speedup / 2.0)
    shown = dict(_facts(Report("job", "product", "id", "cpu", strict)))["baselines (eager = 1)"]
    assert "tf32 3.00 (lower precision)" in shown
    assert flat(Report("job", "product", "id", "cpu", strict))["lower_precision"] == ["tf32"]
    loose = verdict_of(judge, precision="tf32")
    assert loose.timing is not None
    assert loose.speedup_vs_best == pytest.approx(loose.timing.speedup / 4.0)


def test_tf32_that_gives_what_eager_gives_counts(monkeypatch: pytest.MonkeyPatch, judge: Judge) -> None:
    session = judge.session(Problem.from_source(PRODUCT, "product"), Settings())
    list(session.cases.cases_to_check(2))
    assert session.cases.accepts_tf32 is True


def test_a_problem_without_float32_has_no_use_for_tf32(judge: Judge) -> None:
    doubles = PRODUCT.replace("300)", "300).double()").replace("40)", "40).double()")
    session = judge.session(Problem.from_source(doubles, "doubles"), Settings())
    assert session.cases.accepts_tf32 is None


def test_a_device_without_tf32_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reference, "run_in_tf32", lambda *_: pytest.fail("there is no TF32 here"))
    with Judge("cpu") as made:
        session = made.session(Problem.from_source(PRODUCT, "product"), Settings())
        list(session.cases.cases_to_check(2))
        assert isinstance(session.cases, ProblemCases)
        assert session.cases.accepts_tf32 is None


@given(st.sampled_from(PRECISIONS), st.sampled_from(PRECISIONS), st.sampled_from(PRECISIONS))
def test_what_is_allowed_is_an_order(one: str, two: str, three: str) -> None:
    assert allows(one, one)
    assert allows(one, two) or allows(two, one)
    if allows(one, two) and allows(two, three):
        assert allows(one, three)


@pytest.mark.pure
def test_compile_with_tf32_is_timed_where_it_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = registry.load("platforms", "cpu"), registry.load("platforms", "cuda").hardware()
    assert wanted_baselines(Settings(), cuda) == ("eager", "tf32", "compile")
    assert wanted_baselines(Settings(precision="bfloat16"), cuda) == ("eager", "tf32", "compile", "compile_tf32")
    assert wanted_baselines(Settings(baseline="compile_tf32", compile_baseline=False), cuda)[-1] == "compile_tf32"
    assert wanted_baselines(Settings(precision="tf32", baseline="compile_tf32"), cpu) == ("eager", "compile")


@pytest.mark.pure
def test_tf32_is_timed_beside_torch_compile_or_where_it_is_allowed_or_asked_for() -> None:
    cuda = registry.load("platforms", "cuda").hardware()
    assert wanted_baselines(Settings(compile_baseline=False), cuda) == ("eager",)
    assert wanted_baselines(Settings(compile_baseline=False, precision="tf32"), cuda) == ("eager", "tf32")
    assert wanted_baselines(Settings(compile_baseline=False, baseline="tf32"), cuda) == ("eager", "tf32")
    assert wanted_baselines(Settings(compile_baseline=False, baseline="best"), cuda) == ("eager", "tf32", "compile")
