"""Definitions and Workloads of flashinfer-bench and SOL-ExecBench as problems."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge import kernelbench, trace_definition
from kforge.errors import ProblemError, UsageError
from kforge.problems import find
from kforge.problems.suites import open_suite
from kforge.types import Problem

pytestmark = pytest.mark.pure

REFERENCE = """import torch

BATCH = 3


@torch.no_grad()
def run(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight
"""
NORM: dict[str, Any] = {
    "name": "norm_h64",
    "op_type": "rmsnorm",
    "axes": {
        "batch": {"type": "var"},
        "hidden": {"type": "const", "value": 64},
        "half": {"type": "expr", "expression": "hidden // 2"},
    },
    "inputs": {
        "x": {"shape": ["batch", "hidden"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["batch", "hidden"], "dtype": "bfloat16"}},
    "reference": REFERENCE,
}


def workload(batch: int, number: int = 0, **inputs: Any) -> dict[str, Any]:
    given = {"x": {"type": "random"}, "weight": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}}
    return {"axes": {"batch": batch}, "inputs": given | inputs, "uuid": f"w{number}"}


def write(folder: Path, definition: dict[str, Any], *workloads: dict[str, Any]) -> Path:
    """A dataset as flashinfer-bench keeps it; the Definition's file."""
    place = Path("rmsnorm") / f"{definition['name']}.json"
    for kind in ("definitions", "workloads"):
        (folder / kind / "rmsnorm").mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"definition": definition["name"], "workload": item}) for item in workloads]
    (folder / "workloads" / place).with_suffix(".jsonl").write_text("\n".join(lines))
    (folder / "definitions" / place).write_text(json.dumps(definition))
    return folder / "definitions" / place


def test_a_definition_is_a_problem(tmp_path: Path) -> None:
    problem = Problem.from_file(write(tmp_path, NORM, workload(4), workload(96, 1), workload(32, 2)))
    assert problem.name == "norm_h64"
    # The reference has a BATCH of its own.
    assert [item.constants for item in problem.workloads] == [{"BATCH_": 96}, {"BATCH_": 32}, {"BATCH_": 4}]
    (size,) = problem.dynamic
    assert (size.name, size.low, size.high, size.step) == ("BATCH_", 4, 96, 4)
    names: dict[str, Any] = {}
    text = problem.at(problem.workloads[2]).sized_source("cpu")
    pytest.importorskip("torch")
    exec(compile(text, "problem", "exec"), names)
    x, weight, eps = names["get_inputs"]()
    assert (tuple(x.shape), str(x.dtype), tuple(weight.shape), eps) == ((4, 64), "torch.bfloat16", (64,), 1e-6)
    assert names["Model"]()(x, weight, eps).shape == (4, 64)
    assert names["HALF"] == 32


def test_what_a_problem_was_made_of_stays_with_it(tmp_path: Path) -> None:
    problem = Problem.from_file(write(tmp_path, NORM, workload(4), workload(96, 1)))
    origin = trace_definition.origin_of(problem.source)
    assert origin is not None
    assert (origin.format, origin.definition) == ("flashinfer", NORM)
    assert [item["uuid"] for item in origin.workloads] == ["w1", "w0"]
    assert trace_definition.origin_of("KFORGE = {'backward': True}") is None
    # A model that is asked for a program is shown the problem, and not the record of it.
    assert "uuid" not in kernelbench.without_declarations(problem.source)


def test_a_folder_of_sol_execbench(tmp_path: Path) -> None:
    folder = tmp_path / "L1" / "norm.v1"
    folder.mkdir(parents=True)
    text = REFERENCE + "\n\ndef made(given, device):\n    return {'x': torch.ones(given['batch'], given['hidden'])}\n"
    definition = {**NORM, "reference": text, "custom_inputs_entrypoint": "made"}
    del definition["name"]
    (folder / "definition.json").write_text(json.dumps(definition))
    lines = [json.dumps(workload(size, size, x={"type": "custom"})) for size in (2, 8)]
    (folder / "workload.jsonl").write_text("\n".join(lines) + "\n")
    suite = open_suite([f"sol:{tmp_path}"])
    assert list(suite.problems) == ["norm.v1"]
    (problem,) = find(f"sol:{tmp_path}")
    assert problem.name == "norm.v1"
    # Nobody knows which other values and lengths the function's inputs may have.
    assert problem.distributions == ("natural",)
    assert not problem.dynamic
    pytest.importorskip("torch")
    names: dict[str, Any] = {}
    exec(compile(problem.source, "problem", "exec"), names)
    assert float(names["get_inputs"]()[0].sum()) == 8 * 64


def test_many_workloads_are_spread_over_their_sizes(tmp_path: Path) -> None:
    problem = Problem.from_file(write(tmp_path, NORM, *(workload(size, size) for size in range(1, 101))))
    sizes = [item.constants["BATCH_"] for item in problem.workloads]
    assert len(sizes) == trace_definition.MOST_WORKLOADS
    assert (sizes[0], sizes[-1]) == (100, 1)
    assert "16 of its 100 workloads" in problem.source


def changed(**parts: Any) -> dict[str, Any]:
    return {**NORM, **parts}


BAD = {
    "no run": (changed(reference="import torch"), [workload(2)], "no function run"),
    "no Python": (changed(reference="def run(:"), [workload(2)], "not valid Python"),
    "a Model of its own": (changed(reference=f"{REFERENCE}\nclass Model: pass"), [workload(2)], "a Model of its own"),
    "a name that is none": (changed(inputs={"lambda": NORM["inputs"]["x"]}), [workload(2)], "no name in Python"),
    "an unknown axis": (
        changed(inputs={**NORM["inputs"], "x": {"shape": ["rows"], "dtype": "float32"}}),
        [workload(2)],
        "no expression over axes",
    ),
    "a call for an axis": (
        changed(axes={**NORM["axes"], "half": {"type": "expr", "expression": "open('x')"}}),
        [workload(2)],
        "no expression over axes",
    ),
    "an axis of no kind": (changed(axes={"batch": {"type": "long"}}), [workload(2)], "const, var or expr"),
    "a dtype without numbers": (
        changed(inputs={**NORM["inputs"], "x": {"shape": ["batch"], "dtype": "float4_e2m1"}}),
        [workload(2)],
        "no random numbers of the dtype 'float4_e2m1'",
    ),
    "tensors in a file": (
        NORM,
        [workload(2, x={"type": "safetensors", "path": "x", "tensor_key": "x"})],
        "x is read from a file of tensors",
    ),
    "a number that is not given": (NORM, [workload(2, eps={"type": "random"})], "a number that the workload does not"),
    "a number that is none": (NORM, [workload(2, eps={"type": "scalar", "value": float("nan")})], "which is no number"),
    "an axis without a length": (NORM, [{**workload(2), "axes": {}}], "the axis batch has no length"),
    "no workload": (NORM, [], "none of its 0 workloads can be used: there is none"),
    "no axes": (changed(axes=[]), [workload(2)], "a Definition has axes"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_definition_that_cannot_be_used(name: str, tmp_path: Path) -> None:
    definition, workloads, reason = BAD[name]
    file = write(tmp_path, definition, *workloads)
    with pytest.raises(ProblemError, match=reason.replace("(", r"\(")):
        Problem.from_file(file)
    write(tmp_path, {**NORM, "name": "other"}, workload(2))
    suite = open_suite([f"flashinfer:{tmp_path}"])
    assert list(suite.problems) == ["other"]
    assert list(suite.left_out) == ["norm_h64"]


def test_one_workload_that_cannot_be_used_costs_no_other(tmp_path: Path) -> None:
    odd = workload(8, 1, x={"type": "safetensors", "path": "x", "tensor_key": "x"})
    problem = Problem.from_file(write(tmp_path, NORM, workload(4), odd, workload(6, 2)))
    assert [item.constants for item in problem.workloads] == [{"BATCH_": 6}, {"BATCH_": 4}]


def test_places_that_hold_no_definition(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder; name one that holds definitions/KIND"):
        open_suite([f"flashinfer:{tmp_path}/nothing"])
    with pytest.raises(UsageError, match="there is no Definition in it"):
        open_suite([f"sol:{tmp_path}"])
    file = tmp_path / "alone.json"
    file.write_text(json.dumps(NORM))
    with pytest.raises(ProblemError, match="lies in a folder definitions"):
        Problem.from_file(file)
    file.write_text("[1")
    with pytest.raises(ProblemError, match="is not JSON"):
        Problem.from_file(file)


@given(
    st.dictionaries(st.text(min_size=1, max_size=6), st.integers(1, 9), min_size=1, max_size=4),
    st.text(max_size=20),
)
def test_any_names_of_axes_make_valid_python(axes: dict[str, int], note: str) -> None:
    named = {name: {"type": "const", "value": length, "description": note} for name, length in axes.items()}
    definition = {"name": note or "x", "axes": named, "inputs": {}, "outputs": {}, "reference": "def run(): pass"}
    text = trace_definition._text(note or "x", trace_definition.TraceOrigin("sol", definition, (workload(1),)))
    ast.parse(text)
    kernelbench.check(text, "made")
    assert trace_definition.origin_of(text).definition == definition  # type: ignore[union-attr]
