"""A verdict's results by workload, as the rows of a table."""

from __future__ import annotations

from kforge.reports import number_format
from kforge.types import Verdict, WorkloadResult

HEADS = ("workload", "weight", "speedup", "against best", "own code")


def workload_rows(verdict: Verdict | None) -> list[list[str]]:
    """A row for each workload, under HEADS; none where the problem has but one."""
    return [_row(result) for result in verdict.workloads] if verdict else []


def workload_text(verdict: Verdict | None) -> str:
    """Each workload with its speedup and interval, in one line; empty where the problem has but one."""
    return "; ".join(f"{result.workload}: {_speedup(result)}" for result in (verdict.workloads if verdict else ()))


def _row(result: WorkloadResult) -> list[str]:
    best = result.timing.speedup_vs_best if result.timing else None
    share = number_format.percent(result.custom_share)
    return [result.workload, f"{result.weight:.2g}", _speedup(result), number_format.times(best), share]


def _speedup(result: WorkloadResult) -> str:
    timing = result.timing
    if timing is None:
        return "not timed"
    low, high = (number_format.times(end) for end in timing.interval)
    contended = ", contended" if timing.contended else ""
    return f"{number_format.times(timing.speedup)} ({low} to {high}{contended})"
