"""A winner that was timed while others used the machine is judged again: nothing is sure of it before that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kforge.execution.base import Executor, run_apart
from kforge.types import Job, Outcome, Report

_TIMES_AGAIN = 2


async def judge_until_quiet(
    executor: Executor, job: Job, report: Report, tell: Callable[[str], None]
) -> tuple[Report, tuple[str, ...]]:
    """The report on a job, or that of another judging of it without others' work beside, and a note that says which.

    Where there are several devices another one is asked, which may be idle, or not slowed down. A judging that finds a
    fault counts, too: a program that is wrong once is wrong. An executor that keeps its reports, as a bundle does,
    gives the same one again at once.
    """
    if not report.verdict.contended:
        return report, ()
    first = report
    for number in range(_TIMES_AGAIN):
        tell("judging again: others used the machine")
        again = await run_apart(executor, replace(job, id=f"{job.id}-again{number + 1}"), tell, report.verdict)
        if again.verdict.outcome is not Outcome.CORRECT or not again.verdict.contended:
            note = f"judged again, since others used the machine: the first time {first.verdict.timing}"
            return replace(again, job=job.id), (note,)
        report = again
    return first, (f"others used the machine {1 + _TIMES_AGAIN} times: its time is contended, and not sure",)
