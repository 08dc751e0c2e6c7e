"""The charts of a report: which are drawn of what, and what stands above them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kforge.metrics.problem_results import is_correct, speedup
from kforge.metrics.records import AGAINST, Against, Summary
from kforge.reports.charts.cost import PRICES, cost, free_note
from kforge.reports.charts.fast_curves import fast_curves
from kforge.reports.charts.spread_dots import SpreadRow, spread_dots
from kforge.reports.charts.states import states
from kforge.reports.findings import StudyFindings
from kforge.reports.left_out import group_name

COLOURS = 8
"""How many series the style has colours for; a ninth has the first one's."""
BASELINES: dict[Against, str] = {"eager": "against eager PyTorch", "best": "against the fastest baseline"}


@dataclass(frozen=True)
class Figure:
    """A chart under its title."""

    title: str
    drawing: Markup
    kind: str = ""
    """Which position of a switch shows the chart; empty: every one."""
    note: str = ""
    """The text under the chart."""


def series(findings: StudyFindings) -> dict[str, int]:
    """A colour for each configuration, the same in all charts."""
    names = dict.fromkeys(summary.configuration for summary in findings.summaries)
    return {name: place % COLOURS for place, name in enumerate(names)}


def curves(findings: StudyFindings) -> list[Figure]:
    """fast_p, a chart for each platform and baseline."""
    return [
        Figure(_title(findings, platform, BASELINES[against]), drawing, against)
        for platform, summaries in _platforms(findings)
        for against in AGAINST
        if (drawing := fast_curves(summaries, against, series(findings)))
    ]


def stacks(findings: StudyFindings) -> list[Figure]:
    """Correctness by iteration, two charts for each group."""
    return [
        Figure(group_name(findings, summary.platform, summary.configuration), drawing, "own" if own else "reached")
        for summary in findings.summaries
        for own in (False, True)
        if (drawing := states(summary, own))
    ]


def spreads(findings: StudyFindings) -> list[Figure]:
    """All speedups, a chart for each platform and baseline."""
    numbers = series(findings)
    return [
        Figure(_title(findings, platform, BASELINES[against]), drawing, against)
        for platform, summaries in _platforms(findings)
        for against in AGAINST
        if (drawing := spread_dots([_row(findings, summary, against, numbers) for summary in summaries], against))
    ]


def costs(findings: StudyFindings) -> list[Figure]:
    """A chart for each platform and each cost that is known there."""
    return [
        Figure(
            _title(findings, platform, f"{price.name} per problem"), drawing, price.name, free_note(summaries, price)
        )
        for platform, summaries in _platforms(findings)
        for price in PRICES
        if (drawing := cost(summaries, price, series(findings)))
    ]


def _row(findings: StudyFindings, summary: Summary, against: Against, numbers: dict[str, int]) -> SpreadRow:
    trials = findings.study.groups().get((summary.platform, summary.configuration), ())
    counting = set(summary.problems)
    speedups = [
        (trial.cell.problem, value)
        for trial in trials
        if trial.cell.problem in counting and trial.state == "finished" and is_correct(trial)
        if (value := speedup(trial, against)) is not None
    ]
    of = sum(trial.cell.problem in counting and trial.state == "finished" for trial in trials)
    mean = summary.mean_correct.get(against)
    return SpreadRow(summary.configuration, numbers[summary.configuration], tuple(speedups), mean, of)


def _platforms(findings: StudyFindings) -> Iterator[tuple[str, Sequence[Summary]]]:
    for platform in dict.fromkeys(summary.platform for summary in findings.summaries):
        yield platform, [summary for summary in findings.summaries if summary.platform == platform]


def _title(findings: StudyFindings, platform: str, subject: str) -> str:
    several = len({summary.platform for summary in findings.summaries}) > 1
    return f"{platform}: {subject}" if several else subject[0].upper() + subject[1:]
