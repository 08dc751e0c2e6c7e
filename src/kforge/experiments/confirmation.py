"""A winner judged once more: of several measurements the best is a lucky one, and a fresh one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kforge.execution.base import Executor, run_apart
from kforge.run.quiet_verdict import judge_until_quiet
from kforge.run.result import RunResult
from kforge.types import Attempt, Experiment, Job, Verdict, best_attempt

_TIMES = 2.0
"""How much longer than usual the winner is measured."""


def needs_confirmation(experiment: Experiment, history: tuple[Attempt, ...]) -> bool:
    """Whether the winner was chosen among several timed programs, of which a single one was not chosen by its time, was
    timed while others used the machine, or has yet to be compared with torch.compile.
    """
    best = best_attempt(history)
    if not experiment.confirm or best is None:
        return False
    if best.verdict.contended or (experiment.compile_winners and _has_no_compile_baseline(best.verdict)):
        return True
    timed = {attempt.candidate.id for attempt in history if attempt.candidate and attempt.speedup is not None}
    return len(timed) > 1


def of_winner(confirmation: Verdict | None, history: tuple[Attempt, ...]) -> Verdict | None:
    """The confirmation, if it is of the program that wins now: a run that was resumed may have found another."""
    best = best_attempt(history)
    judged = confirmation.evidence.candidate if confirmation and confirmation.evidence else None
    other = judged and best and best.candidate and judged.id != best.candidate.id
    return None if other else confirmation


async def confirm(
    experiment: Experiment, result: RunResult, executor: Executor, tell: Callable[[str], None]
) -> Verdict:
    """The verdict on the best program, on inputs nobody has seen; where there are several devices, on another one."""
    best = result.best
    assert best is not None
    assert best.candidate is not None
    tell("confirming")
    settings = result.spec.settings
    settings = replace(
        settings,
        profilers=(),
        timing_seconds=settings.timing_seconds * _TIMES,
        compile_baseline=settings.compile_baseline or experiment.compile_winners,
    )
    job = Job("confirm", result.spec.problem, best.candidate, settings)
    first = await run_apart(executor, job, tell, best.verdict)
    report, _ = await judge_until_quiet(executor, job, first, tell)
    return report.verdict


def _has_no_compile_baseline(verdict: Verdict) -> bool:
    """Whether a program was timed, and torch.compile was not asked for."""
    return (
        verdict.timing is not None and verdict.evidence is not None and not verdict.evidence.settings.compile_baseline
    )
