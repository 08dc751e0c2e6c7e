"""The evidence of a live module: exported, carried elsewhere, and replayed on another day."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import makers
from kforge.cli.evidence_file import load_evidence, save_evidence
from kforge.errors import UsageError
from kforge.types import Candidate, Evidence, Problem, Report, Settings
from kforge.worker.bundle_folder import PYTHON

PROGRAM = '''
import ctypes, subprocess, tempfile
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void relu(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i]; }
"""
folder = tempfile.mkdtemp()
with open(folder + "/k.cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
kernel = ctypes.CDLL(folder + "/k.so").relu
kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), y.numel())
        return y
'''


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    """A live module whose file lies where nothing stays."""
    import torch

    made = Problem.from_module(torch.nn.ReLU(), [torch.randn(64, 96)])
    place = shutil.move(made.payload, tmp_path / "temporary.pkl")
    return replace(made, payload=str(place))


def evidence(problem: Problem, python: str = PYTHON) -> Report:
    made = Evidence(problem, Candidate("x"), Settings(), {}, {"python": f"{python}.1"}, (), (), (), (), (), {})
    return Report("j", problem.name, "c", "cpu", replace(makers.verdict(1.5), evidence=made))


@pytest.mark.cpu
def test_a_record_has_its_live_module_beside_it(problem: Problem, tmp_path: Path) -> None:
    data = Path(problem.payload).read_bytes()
    for name in ("one", "two"):
        save_evidence(tmp_path / "out" / f"{name}.json", evidence(problem))
    Path(problem.payload).unlink()
    assert len(list((tmp_path / "out").iterdir())) == 3, "records of one module share it"
    assert str(tmp_path) not in (tmp_path / "out" / "one.json").read_text()
    (tmp_path / "out").rename(tmp_path / "carried")
    found = load_evidence(tmp_path / "carried" / "one.json").verdict.evidence
    assert found is not None
    assert found.problem == problem
    assert Path(found.problem.payload).read_bytes() == data


@pytest.mark.cpu
def test_a_record_without_its_module_says_which_file_to_copy(problem: Problem, tmp_path: Path) -> None:
    save_evidence(tmp_path / "out" / "one.json", evidence(problem))
    (module,) = (tmp_path / "out").glob("*.pkl")
    (tmp_path / "out" / "one.json").rename(tmp_path / "alone.json")
    with pytest.raises(UsageError, match=f"copy {module.name} to"):
        load_evidence(tmp_path / "alone.json")


@pytest.mark.cpu
def test_a_module_of_another_python_is_refused(problem: Problem, tmp_path: Path) -> None:
    save_evidence(tmp_path / "one.json", evidence(problem, "3.7"))
    with pytest.raises(UsageError, match=r"a live module of Python 3\.7"):
        load_evidence(tmp_path / "one.json")


@pytest.mark.cpu
def test_a_record_of_an_older_version_names_the_captured_file(problem: Problem, tmp_path: Path) -> None:
    save_evidence(tmp_path / "out" / "one.json", evidence(problem))
    record = json.loads((tmp_path / "out" / "one.json").read_text())
    record["verdict"]["evidence"]["problem"]["payload"] = problem.payload
    (tmp_path / "old.json").write_text(json.dumps(record))
    found = load_evidence(tmp_path / "old.json").verdict.evidence
    assert found is not None
    assert found.problem.payload == problem.payload


@pytest.mark.toolchain
def test_exported_evidence_is_replayed_without_the_temporary_file(
    problem: Problem, kforge_warm: Callable[..., Any], judge: Any, tmp_path: Path
) -> None:
    quick = Settings(compile_baseline=False, timing_seconds=0, seeds=2)
    verdict = judge.evaluate(problem, Candidate(PROGRAM), quick)
    assert verdict.outcome.value == "correct", verdict.detail
    save_evidence(tmp_path / "out" / "record.json", Report("j", problem.name, "c", "cpu", verdict))
    Path(problem.payload).unlink()
    done = kforge_warm("evaluate", "--replay", tmp_path / "out" / "record.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the claim holds" in done.stdout
