"""The recorded sessions, replayed through the real judge: a failure, a repair and an optimisation in each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kforge
from kforge.models.recording import exchanges
from kforge.types import Intent, Job, Report, Settings

SESSIONS = Path(__file__).parent.parent / "examples" / "sessions"
PROBLEMS = {"softmax": "bundled:level1/2", "rms_norm_silu_gate": "bundled:level2/3", "mlp": "bundled:level3/1"}
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
    where = kforge.Workplace(str(tmp_path / "store"), executor=Shared(judge))
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


@pytest.mark.pure
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_recorded_session_is_whole(name: str) -> None:
    traffic = exchanges(SESSIONS / f"{name}.jsonl")
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
