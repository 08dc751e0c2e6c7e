"""A problem in another dtype: what is cast, what is not, and what the judge then tells apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import makers
from kforge import Candidate, Outcome, Problem, ProblemForm, Settings, jsonable, registry
from kforge.agents.prompt_maker import PromptMaker
from kforge.errors import KForgeError, ProblemError
from kforge.packages import drop_in
from kforge.spec.judging_platform import target_of
from kforge.spec.run_spec import make_spec
from kforge.types.evaluation import DTYPES
from kforge.worker.floating_dtype import cast_module, cast_tensor
from kforge.worker.jobs import read_jobs

pytestmark = pytest.mark.cpu

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, table):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(240) + 0.5)
        self.register_buffer("shift", torch.rand(240))
        self.register_buffer("count", torch.tensor([3]))
        self.register_buffer("table", table)

    def forward(self, x, index):
        return ((x * self.weight + self.shift).sum(-1) + self.table[index]) * self.count

def get_inputs():
    return [torch.randn(50, 240), torch.randint(0, 9, (50,))]

def get_init_inputs():
    return [torch.rand(9)]
"""
KERNEL = PROBLEM.split("def get_inputs")[0].replace("class Model(", "class ModelNew(")
IN_FLOAT32 = KERNEL.replace(
    "return ((x * self.weight + self.shift).sum(-1) + self.table[index]) * self.count",
    "rows = (x.float() * self.weight.float() + self.shift.float()).sum(-1)\n"
    "        return ((rows + self.table[index].float()) * self.count).to(x.dtype)",
)
ROUGH = KERNEL.replace(
    "return ((x * self.weight + self.shift).sum(-1)",
    "total = torch.zeros_like(x[:, 0])\n"
    "        for column in range(240):\n"
    "            total = total + (x[:, column] * self.weight[column] + self.shift[column])\n"
    "        return (total",
)
UNTIMED = Settings(compile_baseline=False, timing_seconds=0, policy="any")


def problem(dtype: str) -> Problem:
    return Problem.from_source(PROBLEM, "mixed").in_form(ProblemForm(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_floating_tensors_are_cast_and_integers_are_not(judge: Any, dtype: str) -> None:
    cases = judge.session(problem(dtype), UNTIMED).cases
    wanted = getattr(torch, dtype)
    x, index = cases.reference.inputs(3)
    assert (x.dtype, index.dtype) == (wanted, torch.int64)
    assert {name: value.dtype for name, value in cases.initial_state.items()} == {
        "weight": wanted,
        "shift": wanted,
        "table": wanted,
        "count": torch.int64,
    }
    assert cases.reference.init_arguments[0].dtype == wanted
    assert [output.dtype for output in cases.outputs] == [wanted]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_program_is_cast_like_the_reference(judge: Any, dtype: str) -> None:
    verdict = judge.evaluate(problem(dtype), Candidate(IN_FLOAT32 if dtype != "float64" else KERNEL, "cpu"), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert {item.dtype for item in verdict.domain.tensors} == {dtype, "int64"}


def test_the_tolerance_is_the_dtypes(judge: Any) -> None:
    """A sum in bfloat16 is worse than torch's, which adds up in float32; float32's own rounding is no matter there."""
    assert judge.evaluate(problem("bfloat16"), Candidate(ROUGH, "cpu"), UNTIMED).outcome is Outcome.MISMATCH
    assert judge.evaluate(problem("float32"), Candidate(ROUGH, "cpu"), UNTIMED).outcome is Outcome.CORRECT
    assert judge.evaluate(problem("float64"), Candidate(IN_FLOAT32, "cpu"), UNTIMED).outcome is Outcome.MISMATCH


def test_a_float32_result_is_no_bfloat16_result(judge: Any) -> None:
    source = IN_FLOAT32.replace(".to(x.dtype)", "")
    verdict = judge.evaluate(problem("bfloat16"), Candidate(source, "cpu"), UNTIMED)
    assert verdict.outcome is Outcome.MISMATCH
    assert "has dtype float32, expected bfloat16" in verdict.detail


def test_a_reference_that_cannot_run_in_a_dtype_says_so(judge: Any) -> None:
    source = PROBLEM.replace("x * self.weight", "x @ torch.eye(240) * self.weight")
    with pytest.raises(ProblemError, match="the reference's forward in bfloat16 raises RuntimeError"):
        judge.session(Problem.from_source(source, "stubborn").in_form(ProblemForm("bfloat16")), UNTIMED)


def test_baselines_run_in_it(judge: Any) -> None:
    timed = replace(UNTIMED, timing_seconds=0.05, seeds=1)
    verdict = judge.evaluate(problem("bfloat16"), Candidate(IN_FLOAT32, "cpu"), timed)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.timing is not None, "eager was held against it call by call, dtype and all"


def test_another_dtype_is_another_problem_and_the_record_has_it(judge: Any) -> None:
    plain, short = problem(""), problem("bfloat16")
    assert plain.id == Problem.from_source(PROBLEM, "mixed").id, "as in stores of older versions"
    assert len({plain.id, short.id, problem("float32").id}) == 3
    record = judge.evaluate(short, Candidate(IN_FLOAT32, "cpu"), UNTIMED).evidence
    again = jsonable.decode(type(record), json.loads(json.dumps(jsonable.encode(record))))
    assert again.problem == short
    old = jsonable.encode(plain)
    del old["form"]
    assert jsonable.decode(Problem, old) == plain


def test_a_live_module_keeps_the_dtypes_it_has() -> None:
    live = Problem.from_module(torch.nn.Linear(4, 4).bfloat16(), [torch.randn(2, 4).bfloat16()])
    with pytest.raises(ProblemError, match="has the dtypes it has"):
        live.in_form(ProblemForm("float16"))


def test_options_and_jobs_name_it(tmp_path: Path) -> None:
    file = tmp_path / "mixed.py"
    file.write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text(KERNEL)
    assert make_spec(file, options={"dtype": "float16"}).problem.form == ProblemForm("float16")
    with pytest.raises(KForgeError, match="dtype must be one of float16, bfloat16, float32, float64"):
        make_spec(file, options={"dtype": "int8"})
    lines = [{"problem": "mixed.py", "candidate": "kernel.py"}]
    lines += [lines[0] | {"dtype": "bfloat16"}, lines[0] | {"dtype": "int8"}]
    (tmp_path / "jobs.jsonl").write_text(
        "\n".join(json.dumps(line | {"id": str(n)}) for n, line in enumerate(lines[:2]))
    )
    one, two = read_jobs(tmp_path / "jobs.jsonl", Settings(), "cpu", ProblemForm("float16"))
    assert (one.problem.form.dtype, two.problem.form.dtype) == ("float16", "bfloat16")
    (tmp_path / "jobs.jsonl").write_text(json.dumps(lines[2]))
    with pytest.raises(KForgeError, match=r"jobs.jsonl:1: dtype must be one of"):
        read_jobs(tmp_path / "jobs.jsonl", Settings(), "cpu")


def test_a_prompt_names_it_and_shows_how_to_add_up() -> None:
    form = ProblemForm("bfloat16")
    situation = makers.situation(Problem.from_source(PROBLEM, "mixed").in_form(form))
    text = PromptMaker().generate(replace(situation, target=target_of("cpu", form=form))).prompt.text
    assert "`torch.bfloat16`" in text
    assert "accumulate in float32" in text
    assert "static inline uint16_t narrow" in text, "the example is one in bfloat16"
    usual = PromptMaker().generate(replace(makers.situation(Problem.from_source(PROBLEM)), target=target_of("cpu")))
    assert "bfloat16`:" not in usual.prompt.text
    assert "narrow" not in usual.prompt.text


def test_the_drop_in_is_in_that_dtype() -> None:
    module = drop_in.load(problem("float16"), KERNEL, "cpu")
    assert {name: value.dtype for name, value in module.state_dict().items()}["weight"] == torch.float16
    assert module.count.dtype == torch.int64


@pytest.mark.toolchain
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_the_examples_in_bfloat16_are_right(judge: Any, judges: dict[str, Any], platform: str) -> None:
    reference, candidate = registry.load("platforms", platform).example("half")
    judged = judge if platform == "cpu" else judges.get(platform)
    if judged is None:
        pytest.skip(f"{platform} is not emulated here")
    short = Problem.from_source(reference, "half").in_form(ProblemForm("bfloat16"))
    verdict = judged.evaluate(short, Candidate(candidate, platform), replace(UNTIMED, policy="strict"))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


@given(
    st.sampled_from(DTYPES), st.sampled_from([torch.int64, torch.bool, torch.complex64, torch.float32, torch.float16])
)
@settings(deadline=None)
def test_only_floating_tensors_are_cast(dtype: str, given_dtype: torch.dtype) -> None:
    tensor = torch.ones(3).to(given_dtype)
    cast = cast_tensor(tensor, getattr(torch, dtype))
    assert cast.dtype == (getattr(torch, dtype) if given_dtype.is_floating_point else given_dtype)


def test_a_cast_module_keeps_its_parameters_and_its_ties() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    module[1].weight = module[0].weight
    before = module[0].weight
    cast_module(module, torch.bfloat16)
    assert module[0].weight is before
    assert module[1].weight is module[0].weight
    assert before.dtype == torch.bfloat16


STACK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(4))

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = torch.relu(norm(conv(x)))
        return x

def get_inputs():
    return [torch.randn(4, 16, 16, 16)]

def get_init_inputs():
    return []
"""
BY_MATRICES = STACK.split("def get_inputs")[0].replace("class Model(", "class ModelNew(")
BY_MATRICES = BY_MATRICES.replace(
    "x = torch.relu(norm(conv(x)))",
    """columns = torch.nn.functional.unfold(x, 3, padding=1)
            y = (conv.weight.flatten(1) @ columns).reshape(x.shape) + conv.bias[:, None, None]
            y = torch.nn.functional.batch_norm(y, None, None, norm.weight, norm.bias, True, 0.1, norm.eps)
            x = torch.relu(y)""",
)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("seed", [1, 2])
def test_steps_that_round_as_eagers_do_are_right_where_terms_cancel(judge: Any, dtype: str, seed: int) -> None:
    """A few of many elements behind several layers are next to nothing, and no two honest programs agree on them."""
    stack = Problem.from_source(STACK, "stack").in_form(ProblemForm(dtype))
    verdict = judge.evaluate(stack, Candidate(BY_MATRICES), replace(UNTIMED, seed=seed))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    coarse = BY_MATRICES.replace("conv.weight.flatten(1)", "(conv.weight.flatten(1) * 16).round() / 16")
    assert judge.evaluate(stack, Candidate(coarse), replace(UNTIMED, seed=seed)).outcome is Outcome.MISMATCH
