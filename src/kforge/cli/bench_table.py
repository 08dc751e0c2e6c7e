"""What an experiment came to, in a terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge import jsonable
from kforge.cli.bench_live import duration
from kforge.cli.comparison_lines import print_comparison, print_hanging
from kforge.metrics.records import Mean, Share, Summary
from kforge.reports.findings import StudyFindings
from kforge.reports.left_out import find_omissions
from kforge.reports.number_format import at

_WORDS = ("platform", "configuration")
_FIGURES = ("problems", "correct", "fast_1", "speedup", "vs best", "score", "cost", "time")
_PADDING = (0, 1, 0, 0)
_MOST = 6


def print_summary(console: Console, findings: StudyFindings) -> None:
    """A row for each platform and configuration, what does not count, and what the comparisons say."""
    table = Table(box=None, padding=_PADDING, header_style="dim")
    several = len({item.platform for item in findings.summaries}) > 1
    for name in _WORDS if several else _WORDS[1:]:
        table.add_column(name, overflow="fold", min_width=len(name))
    scored = any(item.scored for item in findings.summaries)
    figures = [name for name in _FIGURES if scored or name != "score"]
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for item in findings.summaries:
        known = _figures(item)
        platform = [escape(item.platform)] if several else []
        table.add_row(*platform, escape(item.configuration), *(known[name] for name in figures))
    console.print(table)
    console.print(
        "fast_1: share of problems that are correct and faster than eager; speedup: geometric mean of correct programs "
        "over eager; vs best: over the faster of eager and torch.compile"
        + ("; score: 1 at the machine's limit, 0.5 where eager is, 0 where wrong" if scored else ""),
        style="dim",
        highlight=False,
    )
    for omission in find_omissions(findings):
        for reason in omission.reasons:
            where = f" ({', '.join(reason.where)})" if any(reason.where) else ""
            line = f"{omission.kind}: {_shorten(reason.problems)}{where}: {reason.why}"
            print_hanging(console, line, "yellow")
    for comparison in findings.comparisons:
        console.print()
        print_comparison(console, comparison)


def _shorten(problems: tuple[str, ...]) -> str:
    return ", ".join(problems[:_MOST]) + (f" and {len(problems) - _MOST} more" if len(problems) > _MOST else "")


def flat_summary(summary: Summary) -> dict[str, Any]:
    """A summary as plain data, for programs."""
    data: dict[str, Any] = jsonable.encode(replace(summary, pass_at={}))
    return {**data, "pass_at": {str(k): value for k, value in summary.pass_at.items()}}


def _figures(item: Summary) -> dict[str, str]:
    unpriced = "+?" if item.usage.unpriced else ""
    best = item.mean_correct.get("best")
    return {
        "problems": str(len(item.problems)),
        "correct": _share(item.correct),
        "fast_1": _share(at(item.fast["eager"], 1.0)) if item.fast.get("eager") else "not timed",
        "speedup": _mean(item.mean_correct.get("eager")),
        "vs best": "-" if best is None else f"{best.value:.2f}",
        "score": "-" if item.score is None else f"{item.score.value:.2f}",
        "cost": f"${item.usage.dollars:.2f}{unpriced}" if item.usage.requests else "$0",
        "time": duration(item.seconds),
    }


def _share(share: Share | None) -> str:
    return "-" if share is None else f"{share.value:.0%}"


def _mean(mean: Mean | None) -> str:
    if mean is None:
        return "-"
    interval = f" [{mean.low:.2f}, {mean.high:.2f}]" if mean.low < mean.high else ""
    return f"{mean.value:.2f}{interval}"
