"""A verdict's results by workload: a table for people, plain values for programs, a line where there is little room."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge.types import Verdict, WorkloadResult


def print_workloads(console: Console, verdict: Verdict) -> None:
    """A row for each workload, as wide as the terminal; nothing where the problem has but one."""
    if not verdict.workloads:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("workload", overflow="fold")
    for name in ("weight", "speedup", "95 %", "vs best", "own code"):
        table.add_column(name, no_wrap=True, justify="right")
    for result in verdict.workloads:
        table.add_row(escape(result.workload), *_cells(result))
    console.print(table)


def _cells(result: WorkloadResult) -> tuple[str, ...]:
    share = "" if result.custom_share is None else f"{result.custom_share:.0%}"
    timing = result.timing
    if timing is None:
        return f"{result.weight:.2g}", "not timed", "", "", share
    low, high = timing.interval
    contended = "\ncontended" if timing.contended else ""
    best = "" if timing.speedup_vs_best is None else f"{timing.speedup_vs_best:.2f}"
    return f"{result.weight:.2g}", f"{timing.speedup:.2f}", f"{low:.2f} to {high:.2f}{contended}", best, share


def workload_line(verdict: Verdict) -> str:
    """Each workload with its speedup, in a line; empty where nothing was timed by workload."""
    timed = ((result.workload, result.timing) for result in verdict.workloads)
    return "; ".join(f"{name}: {timing.speedup:.2f}x" for name, timing in timed if timing is not None)


def flat_workloads(verdict: Verdict) -> list[dict[str, Any]]:
    """What `--json` prints of each workload."""
    return [_flat(result) for result in verdict.workloads]


def _flat(result: WorkloadResult) -> dict[str, Any]:
    timing = result.timing
    return {
        "workload": result.workload,
        "weight": result.weight,
        "speedup": timing.speedup if timing else None,
        "interval": list(timing.interval) if timing else None,
        "speedup_vs_best": timing.speedup_vs_best if timing else None,
        "score": timing.score if timing else None,
        "contended": timing.contended if timing else None,
        "custom_share": result.custom_share,
        "checked_calls": result.checked_calls,
    }
