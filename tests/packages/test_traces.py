"""A program as a Solution with its Traces, read, built and run by flashinfer-bench itself where that is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kforge
from kforge.errors import UsageError
from kforge.packages.description import Winner
from kforge.packages.trace_files import trace_files, write_traces
from kforge.types import Settings
from packages import shipped
from problems.test_definitions import NORM, workload, write

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("packages")]

TIMED = Settings(timing_seconds=0.2, compile_baseline=False, seeds=2, policy="any")
PROGRAM = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, weight, eps):
        wide = x.float()
        norm = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return wide * norm * weight
"""
LAYER = """import torch
import torch.nn as nn

ROWS = 32
KFORGE = {"workloads": [{"ROWS": 32}, {"ROWS": 8}]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(48))

    def forward(self, x, factor):
        return x * self.gain * factor


def get_inputs():
    return [torch.randn(ROWS, 48), 1.5]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def definition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wide = {**NORM, "inputs": {**NORM["inputs"], "x": {"shape": ["batch", "hidden"], "dtype": "float32"}}}
    wide["outputs"] = {"y": {"shape": ["batch", "hidden"], "dtype": "float32"}}
    # flashinfer-bench has no axes that are computed.
    wide["axes"] = {name: axis for name, axis in NORM["axes"].items() if axis["type"] != "expr"}
    return write(tmp_path_factory.mktemp("dataset"), wide, workload(512), workload(64, 1))


def exported(judge: Any, problem: Any, program: str, folder: Path, to: Path) -> dict[str, bytes]:
    result = shipped.forged(judge, problem, program, folder, TIMED)
    assert result.best is not None
    files = trace_files(Winner.of(result, result.best), "dataset")
    write_traces(files, to)
    return files


def test_a_solution_and_its_traces(judge: Any, definition: Path, tmp_path: Path) -> None:
    problem = kforge.Problem.from_file(definition)
    to = tmp_path / "made"
    files = exported(judge, problem, PROGRAM, tmp_path, to)
    (path,) = [path for path in files if path.startswith("solutions/kforge/rmsnorm/norm_h64/")]
    solution = json.loads(files[path])
    assert solution["definition"] == "norm_h64"
    assert (solution["spec"]["language"], solution["spec"]["destination_passing_style"]) == ("python", False)
    lines = [json.loads(line) for line in files["traces/kforge/rmsnorm/norm_h64.jsonl"].splitlines()]
    assert [line["workload"]["uuid"] for line in lines] == ["w0", "w1"]
    for line in lines:
        low, high = line["evaluation"]["correctness"]["extra"]["speedup_interval_95"]
        assert low <= line["evaluation"]["performance"]["speedup_factor"] <= high
        assert line["solution"] == solution["name"]
    # What others keep in the dataset stays, and what was written before is replaced.
    traces = to / "traces" / "kforge" / "rmsnorm" / "norm_h64.jsonl"
    traces.write_text(json.dumps({**lines[0], "solution": "another"}) + "\n" + traces.read_text())
    write_traces(files, to)
    assert [json.loads(line)["solution"] == "another" for line in traces.read_text().splitlines()] == [
        True,
        False,
        False,
    ]
    assert len((to / "workloads" / "rmsnorm" / "norm_h64.jsonl").read_text().splitlines()) == 2
    there = to / "definitions" / "rmsnorm" / "norm_h64.json"
    there.write_text(json.dumps({**json.loads(there.read_text()), "tags": ["changed"]}))
    with pytest.raises(UsageError, match="another Definition of that name"):
        write_traces(files, to)


LOADS = """
import sys
import torch
import flashinfer_bench.data as data
from flashinfer_bench.bench.utils import gen_inputs
from flashinfer_bench.compile import BuilderRegistry

found = data.TraceSet.from_path(sys.argv[1])
for name, solutions in found.solutions.items():
    definition = found.definitions[name]
    names = {}
    exec(definition.reference, names)
    for solution in solutions:
        built = BuilderRegistry.get_instance().build(definition, solution)
        for item in found.workloads[name]:
            inputs = gen_inputs(definition, item.workload, "cpu")
            torch.testing.assert_close(built(*inputs), names["run"](*inputs), rtol=1e-4, atol=1e-4)
        wrong = [torch.randn(3, *value.shape[1:]) if getattr(value, "ndim", 0) > 1 else value for value in inputs]
        try:
            built(*wrong)
        except Exception as error:
            print(type(error).__name__)
    print(name, len(solutions), [trace.is_successful() for trace in found.traces[name]])
"""


@pytest.mark.toolchain
def test_flashinfer_bench_runs_it(judge: Any, definition: Path, tmp_path: Path) -> None:
    pytest.importorskip("flashinfer_bench.data", reason="flashinfer-bench is not installed")
    to = tmp_path / "made"
    exported(judge, kforge.Problem.from_file(definition), PROGRAM, tmp_path, to)
    layer = kforge.Problem.from_source(LAYER, "1_Layer")
    exported(judge, layer, LAYER.replace("class Model(", "class ModelNew("), tmp_path / "second", to)
    environment = {"FIB_CACHE_PATH": str(tmp_path / "cache"), "KFORGE_PACKAGE_CACHE": str(tmp_path / "built")}
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(to)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **environment},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # What was not verified is an error, and not the reference's time.
    assert done.stdout.splitlines() == [
        "NotVerified",
        "layer 1 [True, True]",
        "NotVerified",
        "norm_h64 1 [True, True]",
    ]


def test_a_definition_is_made_of_a_problem_file(judge: Any, tmp_path: Path) -> None:
    problem = kforge.Problem.from_source(LAYER, "1_Layer")
    files = exported(judge, problem, LAYER.replace("class Model(", "class ModelNew("), tmp_path, tmp_path / "made")
    made = json.loads(files["definitions/module/layer.json"])
    assert made["axes"] == {"n0": {"type": "var"}, "n1": {"type": "const", "value": 48}}
    assert {name: spec["shape"] for name, spec in made["inputs"].items()} == {
        "x": ["n0", "n1"],
        "factor": None,
        "gain": ["n1"],
    }
    lines = [json.loads(line)["workload"] for line in files["workloads/module/layer.jsonl"].splitlines()]
    assert [line["axes"] for line in lines] == [{"n0": 32}, {"n0": 8}]
    assert lines[0]["inputs"]["factor"] == {"type": "scalar", "value": 1.5}


def test_what_no_trace_can_say(judge: Any, tmp_path: Path) -> None:
    program = LAYER.replace("class Model(", "class ModelNew(")
    untimed = shipped.forged(judge, kforge.Problem.from_source(LAYER, "1_Layer"), program, tmp_path, shipped.ANY)
    assert untimed.best is not None
    with pytest.raises(UsageError, match="it was judged without a time"):
        trace_files(Winner.of(untimed, untimed.best), "dataset")
    labels = LAYER.replace("x * self.gain", "x.float() * self.gain").replace(
        "torch.randn(ROWS, 48)", "torch.randint(0, 9, (ROWS, 48))"
    )
    program = labels.replace("class Model(", "class ModelNew(")
    counted = shipped.forged(judge, kforge.Problem.from_source(labels, "2_Labels"), program, tmp_path / "b", TIMED)
    assert counted.best is not None
    with pytest.raises(UsageError, match="x is of int64: a Definition says nothing of which values"):
        trace_files(Winner.of(counted, counted.best), "dataset")
