"""The recorded sessions, replayed through the real judge: repairs and optimisations, and one platform's program as
another's reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kforge
import makers
from kforge import problems
from kforge.agents.reply import find_program
from kforge.execution.null import NullExecutor
from kforge.models.recordings import read_exchanges
from kforge.run.model_pool import ModelAccess
from kforge.types import Candidate, Intent, Job, Outcome, Report, Settings, Verdict

pytestmark = pytest.mark.xdist_group("emulated")

SESSIONS = Path(__file__).parents[2] / "examples" / "sessions"
PROBLEMS = {"softmax": "bundled:level1/2", "rms_norm_silu_gate": "bundled:level2/3", "mlp": "bundled:level3/1"}
CROSSED = {"softmax": "bundled:level1/2", "rms_norm_silu_gate": "bundled:level2/3", "cumsum": "bundled:level1/6"}
BEST = {"softmax": 2, "rms_norm_silu_gate": 4, "cumsum": 1}
"""Whose program was the fastest of the four on the GPU."""
INLINE_PTX = {("cumsum", 4)}
QUICK = Settings(compile_baseline=False, timing_seconds=0.1, seeds=2)


class Shared:
    """The test session's warm judge as an executor."""

    def __init__(self, judge: Any) -> None:
        import asyncio

        self._judge = judge
        self.machine = asyncio.Lock()

    async def run(self, job: Job, tell: Any) -> Report:
        report: Report = self._judge.report(job, tell)
        return report

    async def close(self) -> None:
        pass


@pytest.mark.toolchain
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_recorded_session_replays(name: str, judge: Any, tmp_path: Path) -> None:
    where = kforge.RunEnvironment(str(tmp_path / "store"), executor=Shared(judge))
    model = f"replay:{SESSIONS / name}.jsonl"
    result = kforge.forge(
        PROBLEMS[name], "cpu", model, where, iterations=3, plateau=4, settings=QUICK, profilers=("roofline",)
    )
    first, second, third = result.history
    assert not first.correct
    assert (second.move.intent, second.correct) == (Intent.REPAIR, True)
    assert (third.move.intent, third.correct) == (Intent.OPTIMISE, True)
    assert third.recommendation is not None
    assert third.candidate is not None
    assert third.candidate.id != second.candidate.id  # type: ignore[union-attr]
    assert result.usage.requests == 0, "a replayed reply costs nothing"


@pytest.mark.cpu
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_a_session_comes_to_does_not_depend_on_the_times(name: str, tmp_path: Path) -> None:
    """Whichever program is measured as the best, the recorded replies give the same four."""

    def replayed(place: str, speedups: dict[str, float]) -> list[str]:
        def judge(job: Job) -> Verdict:
            speedup = speedups.get(job.id)
            return makers.verdict(speedup) if speedup else makers.verdict(outcome=Outcome.MISMATCH)

        where = kforge.RunEnvironment(str(tmp_path / place), executor=NullExecutor(judge))
        model = f"replay:{SESSIONS / name}.jsonl"
        result = kforge.forge(PROBLEMS[name], "cpu", model, where, iterations=4, settings=QUICK)
        assert [attempt.correct for attempt in result.history] == [False, True, True, True]
        parents = [attempt.move.parent for attempt in result.history]
        assert parents == [None, 1, 2, 3 if speedups["0.3"] > speedups["0.2"] else 2]
        return [attempt.candidate.id for attempt in result.history if attempt.candidate]

    recorded = replayed("one", {"0.2": 1.0, "0.3": 2.0, "0.4": 3.0})
    assert len(set(recorded)) == 4
    assert replayed("two", {"0.2": 3.0, "0.3": 2.0, "0.4": 1.0}) == recorded
    assert replayed("three", {"0.2": 1.0, "0.3": 0.5, "0.4": 0.1}) == recorded


@pytest.mark.pure
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_recorded_session_is_whole(name: str) -> None:
    traffic = read_exchanges(SESSIONS / f"{name}.jsonl")
    slots = [(exchange.purpose, exchange.sample) for exchange in traffic]
    assert slots == [
        ("generate", "0.1.1"),
        ("generate", "0.2.1"),
        ("analyse", "0.3.1"),
        ("generate", "0.3.1"),
        ("analyse", "0.4.1"),
        ("generate", "0.4.1"),
    ]
    assert "The verdict on it" in traffic[1].prompt
    assert all("API_KEY" not in exchange.prompt for exchange in traffic)


# -- from one platform to another ---------------------------------------------------------------------------------


def programs(name: str, platform: str) -> list[str]:
    """What the writer sent, in order."""
    found: list[str] = []
    for exchange in read_exchanges(SESSIONS / f"{name}_{platform}.jsonl"):
        if exchange.purpose == "generate":
            program = find_program(exchange.reply, found[-1] if found else None).source
            assert program is not None
            found.append(program)
    return found


def emulating(judges: dict[str, Any], name: str) -> Any:
    if name not in judges:
        pytest.skip(f"platform {name} has its hardware here")
    return judges[name]


@pytest.mark.toolchain
@pytest.mark.parametrize("name", CROSSED)
def test_a_program_for_one_platform_is_the_reference_for_another(
    name: str, judges: dict[str, Any], tmp_path: Path
) -> None:
    store, said = str(tmp_path / "store"), tmp_path / "said.jsonl"
    there = kforge.RunEnvironment(store, executor=Shared(emulating(judges, "cuda")))
    model = f"replay:{SESSIONS / name}_cuda.jsonl"
    first = kforge.forge(CROSSED[name], "cuda", model, there, iterations=4, settings=QUICK)
    assert first.best is not None
    assert first.best.verdict.emulated
    here = kforge.RunEnvironment(store, ModelAccess(record=str(said)), executor=Shared(emulating(judges, "metal")))
    model = f"replay:{SESSIONS / name}_metal.jsonl"
    second = kforge.forge(CROSSED[name], "metal", model, here, settings=QUICK, reference="cuda")
    assert second.best is not None
    assert second.best.verdict.emulated
    assert second.best.verdict.timing is None
    asked = read_exchanges(said)[0].prompt
    assert first.source in asked, "the other platform's program is shown whole"
    assert "threadgroup" in asked
    assert "COLUMNS = 8192" in asked or "COLUMNS = 4096" in asked or "FEATURES = 2048" in asked


@pytest.mark.toolchain
@pytest.mark.parametrize(("name", "step"), [(name, step) for name in CROSSED for step in (1, 2, 3, 4)])
def test_the_emulator_agrees_with_the_gpu_on_what_was_recorded_there(
    name: str, step: int, judges: dict[str, Any]
) -> None:
    judge = emulating(judges, "cuda")
    (problem,) = problems.find(CROSSED[name])
    source = programs(name, "cuda")[step - 1]
    verdict = judge.evaluate(problem, Candidate(source, "cuda"), Settings(timing_seconds=0, seeds=1))
    if (name, step) in INLINE_PTX:
        assert (verdict.outcome, "inline PTX" in verdict.detail) == (Outcome.COMPILATION_FAILURE, True)
    else:
        assert verdict.outcome is Outcome.CORRECT, verdict.detail


@pytest.mark.pure
@pytest.mark.parametrize("name", CROSSED)
def test_sessions_of_two_platforms_are_whole(name: str) -> None:
    traffic = read_exchanges(SESSIONS / f"{name}_cuda.jsonl")
    slots = [(exchange.purpose, exchange.sample) for exchange in traffic]
    later = [(purpose, f"0.{step}.1") for step in (2, 3, 4) for purpose in ("analyse", "generate")]
    assert slots == [("generate", "0.1.1"), *later]
    for exchange in traffic:
        if exchange.purpose == "analyse":
            assert all(tool in exchange.prompt for tool in ("torch_trace", "roofline", "ncu", "sass"))
    (asked,) = read_exchanges(SESSIONS / f"{name}_metal.jsonl")
    assert programs(name, "cuda")[BEST[name] - 1].strip() in asked.prompt
    assert "verified on an emulator with smaller sizes" in asked.prompt
