"""Programs of one run are compared with each other: a run that goes on is judged on the hardware that it began on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import bundle_maker
import makers
from kforge.execution.base import Tell
from kforge.execution.null import NullExecutor
from kforge.models.scripted import Scripted
from kforge.run.context import RunEnvironment
from kforge.run.lifecycle import drive_run
from kforge.run.model_pool import ModelAccess
from kforge.spec.run_spec import ResumeOptions
from kforge.types import Job, Plan, Problem, RunSpec, Verdict

pytestmark = pytest.mark.cpu


class SeveralModels(NullExecutor):
    """Has devices of several models, and notes which was asked for."""

    chosen: list[str]

    def keep_to_hardware(self, model: str) -> None:
        self.chosen.append(model)

    async def facts(self, tell: Tell) -> dict[str, str]:
        return {"processor": self.chosen[-1]} if self.chosen else {}


def judge(job: Job) -> Verdict:
    return replace(makers.verdict(1.5), evidence=bundle_maker.report_on(job, 1.0).verdict.evidence)


class WithoutDeviceAtFirst:
    """The first verdict is one in which no device had a part."""

    def __init__(self) -> None:
        self._is_first = True

    def __call__(self, job: Job) -> Verdict:
        verdict = judge(job)
        if self._is_first:
            assert verdict.evidence is not None
            verdict = replace(verdict, evidence=replace(verdict.evidence, device={"used": "no device"}))
        self._is_first = False
        return verdict


async def _twice(
    problem: Problem, store: Path, judge: Callable[[Job], Verdict] = judge, begin: int = 1
) -> list[list[str]]:
    chosen: list[list[str]] = []
    run, spec = "", RunSpec(problem, models=("scripted",), plan=Plan(iterations=begin))
    for iterations in (begin, begin + 1):
        executor = SeveralModels(judge)
        object.__setattr__(executor, "chosen", [])
        model = Scripted(lambda prompt: makers.reply(f"x + {len(prompt.text)}"))
        environment = RunEnvironment(store, ModelAccess(models={"scripted": model}), executor=executor)
        result = await drive_run(ResumeOptions(iterations=iterations).apply_to(spec), environment, run)
        run, spec = result.run, result.spec
        assert len(result.history) == iterations
        chosen.append(executor.chosen)
    return chosen


def test_a_resumed_run_keeps_to_its_hardware(scale_relu: Problem, tmp_path: Path) -> None:
    first, second = asyncio.run(_twice(scale_relu, tmp_path / "store"))
    assert first == [], "whichever the executor likes"
    assert second == ["elsewhere"], "what the evidence of its first program names"


def test_a_run_that_has_all_its_programs_waits_for_no_device(scale_relu: Problem, tmp_path: Path) -> None:
    class Gone(SeveralModels):
        async def facts(self, tell: Tell) -> dict[str, str]:
            raise AssertionError("nobody is there, and it would wait for ever")

    async def work() -> None:
        model = Scripted(lambda _: makers.reply("x"))
        environment = RunEnvironment(tmp_path / "store", ModelAccess(models={"scripted": model}))
        there, gone = SeveralModels(judge), Gone(judge)
        for executor in (there, gone):
            object.__setattr__(executor, "chosen", [])
        spec = RunSpec(scale_relu, models=("scripted",), plan=Plan(iterations=1))
        result = await drive_run(spec, replace(environment, executor=there))
        again = await drive_run(result.spec, replace(environment, executor=gone), result.run)
        assert again.history == result.history

    asyncio.run(work())


def test_a_program_that_met_no_device_chooses_none(scale_relu: Problem, tmp_path: Path) -> None:
    _, second = asyncio.run(_twice(scale_relu, tmp_path / "store", WithoutDeviceAtFirst(), begin=2))
    assert second == ["elsewhere"]
