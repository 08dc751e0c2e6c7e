"""`kforge report --records`: what lies behind a report as files, and records that leave the problem's text out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import bundle_maker
import makers
from kforge import Candidate, Problem, Settings
from kforge.cli.evidence_file import load_evidence, save_evidence
from kforge.cli.record_folder import write_records
from kforge.errors import UsageError
from kforge.execution.null import NullExecutor
from kforge.experiments.resume_plan import begin, open_experiment
from kforge.experiments.scheduler import ExperimentEnvironment, conduct
from kforge.experiments.study_reader import read_study
from kforge.models.scripted import Scripted
from kforge.run.model_pool import ModelAccess
from kforge.store.store import Store
from kforge.types import Configuration, Evidence, Experiment, Job, Prompt, Report, Verdict

pytestmark = pytest.mark.cpu

SOURCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * {n}
def get_inputs():
    return [torch.randn(8)]
def get_init_inputs():
    return []
"""
MINE = Problem.from_source(SOURCE.format(n=3), "mine", level=1, number=1)


def record(path: Path, with_problem: bool) -> None:
    made = Evidence(MINE, Candidate("x"), Settings(), {}, {}, (), (), (), (), (), {})
    save_evidence(path, Report("j", "mine", "c", "cpu", replace(makers.verdict(1.5), evidence=made)), with_problem)


def test_a_record_without_the_problem_is_replayed_with_its_file(tmp_path: Path) -> None:
    record(tmp_path / "r.json", with_problem=False)
    assert "torch.relu" not in (tmp_path / "r.json").read_text()
    with pytest.raises(UsageError, match=r"level1/mine was left out: kforge evaluate PROBLEM\.py --replay"):
        load_evidence(tmp_path / "r.json")
    other = replace(MINE, source=SOURCE.format(n=4))
    with pytest.raises(UsageError, match="another problem than its level1/mine, or another version"):
        load_evidence(tmp_path / "r.json", other)
    found = load_evidence(tmp_path / "r.json", replace(MINE, path="elsewhere.py")).verdict.evidence
    assert found is not None
    assert found.problem.id == MINE.id
    assert found.problem.source == MINE.source


def test_a_record_with_the_problem_needs_no_file(tmp_path: Path) -> None:
    record(tmp_path / "r.json", with_problem=True)
    found = load_evidence(tmp_path / "r.json").verdict.evidence
    assert found is not None
    assert found.problem == MINE


@pytest.mark.parametrize("with_problems", [True, False])
def test_everything_behind_a_report_is_written(tmp_path: Path, with_problems: bool) -> None:
    def reply(prompt: Prompt) -> str:
        if prompt.purpose == "analyse":
            return '{"recommendation": "Fuse the loops.", "evidence": "two passes"}'
        return makers.reply(f"x # {prompt.sample}")

    def judge(job: Job) -> Verdict:
        found = bundle_maker.report_on(job, 1.5).verdict
        return replace(makers.verdict(1.5), evidence=found.evidence)

    way = Configuration("text & more", ("scripted:a",), {"iterations": 2})
    wanted = Experiment("e", {"level1/mine": MINE}, (way,), suite="made here")
    access = ModelAccess(models={"scripted:a": Scripted(reply, name="scripted:a")})
    with Store.open(tmp_path / "store") as store:
        name = begin(wanted, store, False)
        pool = open_experiment(wanted, access)
        asyncio.run(conduct(name, ExperimentEnvironment(store, access, pool=pool, executor=NullExecutor(judge))))
        count = write_records(store, read_study(store, ["e"]), tmp_path / "out", with_problems)
    home = tmp_path / "out" / "cpu-text_more" / "level1_mine"
    names = {"1.1.py", "1.1.json", "1.1.generate.md", "1.2.py", "1.2.json", "1.2.generate.md", "1.2.analyse.md"}
    assert {path.name for path in home.iterdir()} == names | {"winner.json"}
    assert count == 3
    assert "Fuse the loops." in (home / "1.2.analyse.md").read_text()
    assert "ModelNew" in (home / "1.1.py").read_text()
    assert ("torch.relu" in (home / "1.1.json").read_text()) is with_problems
    assert ("not in the records" in (tmp_path / "out" / "README.md").read_text()) is not with_problems
    assert load_evidence(home / "winner.json", MINE).verdict.speedup == 1.5
