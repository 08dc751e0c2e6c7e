"""What an experiment came to, in a terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge import jsonable
from kforge.measures.records import Mean, Point, Share, Summary
from kforge.measures.words import in_words
from kforge.reporting.findings import Findings

_COLUMNS = ("platform", "configuration", "problems", "correct", "fast_1", "speedup", "vs best", "cost", "seconds")


def print_summary(console: Console, findings: Findings) -> None:
    """A row for each platform and configuration, what does not count, and what the comparisons say."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("platform", "configuration") else "right", no_wrap=True)
    for item in findings.summaries:
        table.add_row(*_cells(item))
    console.print(table)
    console.print(
        "fast_1: share of problems that are correct and faster than eager; speedup: geometric mean of correct programs "
        "over eager; vs best: over the faster of eager and torch.compile",
        style="dim",
        highlight=False,
    )
    for item in findings.summaries:
        for words, listed in (
            ("degenerate, not counted", item.degenerate),
            ("could not be judged", item.unusable),
            ("not finished", item.unfinished),
        ):
            for key, why in listed.items():
                where = f"{item.configuration} on {item.platform}" if len(findings.summaries) > 1 else ""
                said = f"{words}: {key}" + (f" ({where})" if where else "") + f": {why}"
                console.print(escape(said), style="yellow", highlight=False, soft_wrap=True)
    for comparison in findings.comparisons:
        console.print(f"\n[bold]A[/] {escape(comparison.a)}   [bold]B[/] {escape(comparison.b)}", highlight=False)
        for line in in_words(comparison):
            console.print(escape(line), highlight=False, soft_wrap=True)


def flat_summary(summary: Summary) -> dict[str, Any]:
    """For programs."""
    data: dict[str, Any] = jsonable.encode(replace(summary, pass_at={}))
    return {**data, "pass_at": {str(k): value for k, value in summary.pass_at.items()}}


def _cells(item: Summary) -> list[str]:
    unpriced = "+?" if item.usage.unpriced else ""
    return [
        escape(item.platform),
        escape(item.configuration),
        str(len(item.problems)),
        _share(item.correct),
        _share(_at(item.fast.get("eager", ()), 1.0)) if item.timed else "not timed",
        _mean(item.mean_correct.get("eager")),
        _mean(item.mean_correct.get("best")),
        f"${item.usage.dollars:.2f}{unpriced}" if item.usage.requests else "$0",
        f"{item.seconds:.0f}",
    ]


def _at(points: tuple[Point, ...], p: float) -> Share | None:
    return next((point.share for point in points if point.p == p), None)


def _share(share: Share | None) -> str:
    return "-" if share is None else f"{share.value:.0%}"


def _mean(mean: Mean | None) -> str:
    return "-" if mean is None else f"{mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]"
