"""The table of what was reached after one program, after two, and so on."""

from __future__ import annotations

from collections.abc import Callable

from kforge.metrics.records import Iteration
from kforge.reports import number_format
from kforge.reports.findings import StudyFindings
from kforge.reports.left_out import group_name

ITERATION_NOTE = (
    "What somebody has who stops after so many programs of a chain and takes the best one so far, by the verdicts in "
    "the run: winners are judged once more at the very end only."
)
_FIGURES: tuple[tuple[str, Callable[[Iteration], str]], ...] = (
    ("correct", lambda item: number_format.share(item.correct)),
    ("fast_1 vs eager", lambda item: number_format.share(number_format.at(item.fast.get("eager", ()), 1.0))),
    ("fast_1.5 vs eager", lambda item: number_format.share(number_format.at(item.fast.get("eager", ()), 1.5))),
    ("mean vs eager", lambda item: number_format.mean(item.mean_correct.get("eager"))),
    ("fast_1 vs best", lambda item: number_format.share(number_format.at(item.fast.get("best", ()), 1.0))),
)


def iteration_table(findings: StudyFindings) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, without figures that are known nowhere; nothing where chains have one program."""
    longest = max((len(summary.iterations) for summary in findings.summaries), default=0)
    if longest < 2:
        return [], []
    rows = []
    for summary in findings.summaries:
        for name, show in _FIGURES:
            shown = [show(item) for item in summary.iterations]
            if any(text != number_format.NONE for text in shown):
                label = group_name(findings, summary.platform, summary.configuration)
                # A chain that ended early keeps what it has.
                rows.append([label, name, *shown, *[shown[-1]] * (longest - len(shown))])
    return ["configuration", "figure", *map(str, range(1, longest + 1))], rows
