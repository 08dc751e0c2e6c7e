"""What a judge must get over: refused candidates by the dozen, a baseline that dies, threads that end, being closed."""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import replace
from typing import Any

import pytest

import bursts
from conditions import PATIENCE, wait_until
from faults import program
from kforge.errors import HarnessError
from kforge.types import Candidate, Limits, Outcome, Settings
from kforge.worker.judge.judge import Judge
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle
from kforge.worker.protocol.base import RaisedError

pytestmark = pytest.mark.toolchain

QUICK = Settings(compile_baseline=False, timing_seconds=0.1, seeds=1)


def open_memory() -> int:
    """Descriptors of shared memory that this process holds."""
    gc.collect()
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return sum("memfd:kforge" in name for name in names)


def test_refused_candidates_leave_no_memory_behind(judge: Any, scale_relu: Any) -> None:
    assert judge.evaluate(scale_relu, Candidate(program()), QUICK).outcome is Outcome.CORRECT
    before = open_memory()
    for number in range(3):
        wrong = program(forward=f"x = x + {number + 1}")
        assert judge.evaluate(scale_relu, Candidate(wrong), QUICK).outcome is Outcome.MISMATCH
        raising = program(forward=f"raise ValueError({number})")
        assert judge.evaluate(scale_relu, Candidate(raising), QUICK).outcome is Outcome.RUNTIME_ERROR
    assert open_memory() <= before


def test_a_dead_baseline_is_not_charged_to_the_candidate(judge: Any, scale_relu: Any) -> None:
    assert judge.evaluate(scale_relu, Candidate(program()), QUICK).outcome is Outcome.CORRECT
    session = judge.session(scale_relu, QUICK)
    session.baselines.lane("eager").runner.kill()
    verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


@pytest.mark.quiet
def test_an_honest_program_beside_others_work_is_never_refused(judge: Any, scale_relu: Any) -> None:
    """With two processes that come and go on the processors, and a baseline that dies among them."""
    judge.session(scale_relu, QUICK).baselines.lane("eager").runner.kill()
    with bursts.beside():
        verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.contended


@pytest.mark.quiet
def test_a_hang_is_told_from_waiting_for_a_processor(judge: Any, scale_relu: Any) -> None:
    """A call that needs most of its limit in processor time gets the time that others took from it."""
    limits = Limits(build_seconds=60, call_seconds=1)
    work = "until = time.process_time() + 0.4\nwhile time.process_time() < until:\n    pass"
    settings = replace(QUICK, timing_seconds=0, limits=limits, policy="any")
    with bursts.beside(4):
        verdict = judge.evaluate(scale_relu, Candidate(program(forward=work)), settings)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    verdict = judge.evaluate(scale_relu, Candidate(program(forward="time.sleep(60)")), settings)
    assert "did not finish" in verdict.detail


def test_a_baseline_that_cannot_be_built_is_listed_with_the_reason(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    baselines = judge.session(scale_relu, QUICK).baselines
    make = baselines._make

    def failing(name: str) -> Any:
        if name != "compile":
            return make(name)
        error = ProgramError("forward", RaisedError("BackendCompilerFailed", "no kernel for it"), [])
        error.runner = RunnerHandle(None, None)  # type: ignore[arg-type]
        raise error

    monkeypatch.setattr(baselines, "_make", failing)
    monkeypatch.setattr(baselines, "_ratios", {})
    verdict = judge.evaluate(scale_relu, Candidate(program()), replace(QUICK, compile_baseline=True))
    monkeypatch.undo()
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    [compiled] = [item for item in verdict.timing.baselines if item.name == "compile"]
    assert compiled.ratio is None
    assert "no kernel for it" in compiled.note


def test_a_zygote_outlives_the_thread_that_started_it(scale_relu: Any) -> None:
    settings = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
    with Judge("cpu") as judge:
        starter = threading.Thread(target=judge._launch_runner_pool, args=(settings,))
        starter.start()
        starter.join()
        assert judge.evaluate(scale_relu, Candidate(program()), settings).outcome is Outcome.CORRECT


def test_closing_ends_a_judgement_at_once(scale_relu: Any) -> None:
    settings = Settings(
        compile_baseline=False, timing_seconds=0, seeds=1, limits=Limits(build_seconds=600, call_seconds=600)
    )
    judge = Judge("cpu")
    ended: list[Any] = []

    def judging() -> None:
        try:
            ended.append(
                judge.evaluate(scale_relu, Candidate(program(forward="time.sleep(500)")), settings, said.append)
            )
        except Exception as error:
            ended.append(error)

    said: list[str] = []
    thread = threading.Thread(target=judging)
    thread.start()
    wait_until(lambda: any(words.startswith("checking") for words in said), "it is called")
    judge.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(ended) == 1
    with pytest.raises(HarnessError, match="closed"):
        judge._trusted.spawn(Limits())
