"""What a problem cost against how good the programs became: up and to the left is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kforge.metrics.records import Share, Summary
from kforge.reports import number_format
from kforge.reports.charts.scales import Linear, Log, around
from kforge.reports.charts.svg import Drawing, spread
from kforge.reports.findings import any_timed

_WIDTH, _HEIGHT = 400.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 10.0, 360.0, 26.0, 202.0


@dataclass(frozen=True)
class Price:
    """One way of counting what a problem cost."""

    name: str
    per_problem: Callable[[Summary], float | None]
    text: Callable[[float | None], str]
    """The cost as a reader sees it."""
    marks: tuple[float, ...] = ()
    """Where its axis may be marked; empty: at round numbers."""


def _count_begun(summary: Summary) -> int:
    """Problems that were begun, whatever became of them."""
    begun = {key for key, why in summary.unfinished.items() if why != "new"}
    return len({*summary.problems, *begun, *summary.unusable, *summary.degenerate})


def _dollars(summary: Summary) -> float | None:
    return None if summary.usage.unpriced else summary.usage.dollars / max(1, _count_begun(summary))


_CLOCK = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200, 18000, 36000, 72000, 180000)
PRICES = (
    Price("dollars", _dollars, number_format.money),
    Price("tokens", lambda summary: summary.usage.tokens / max(1, _count_begun(summary)), number_format.amount),
    Price("time", lambda summary: summary.seconds / max(1, _count_begun(summary)), number_format.seconds, _CLOCK),
)


def cost(summaries: Sequence[Summary], price: Price, series: dict[str, int]) -> Markup | None:
    """The chart of one platform's configurations; None where none of them has such a cost."""
    faster = any_timed(summaries, "eager")
    points = [
        (summary.configuration, paid, share)
        for summary in summaries
        if (paid := price.per_problem(summary)) and (share := _quality(summary, faster))
    ]
    if not points:
        return None
    low, high = around([paid for _, paid, _ in points], margin=1.4, least=3.0)
    along, up = Log(low, high, _LEFT, _RIGHT), Linear(0.0, 1.0, _BOTTOM, _TOP)
    figure = "correct and faster than eager" if faster else "correct"
    points_text = ", ".join(
        f"{name} {price.text(paid)} for {number_format.percent(share.value)}" for name, paid, share in points
    )
    drawing = Drawing(_WIDTH, _HEIGHT, f"Cost against quality: {points_text}")
    _axes(drawing, along, up, price)
    _points(drawing, points, (along, up), series)
    drawing.text((_LEFT, _TOP - 12), f"share of problems {figure}", "axis")
    drawing.text(((_LEFT + _RIGHT) / 2, _HEIGHT - 8), f"{price.name} per problem", "axis", "middle")
    return drawing.finish()


def free_note(summaries: Sequence[Summary], price: Price) -> str:
    """Which configurations cost nothing: a log axis has no place for those. Empty where there are none."""
    faster = any_timed(summaries, "eager")
    costless = [
        f"{summary.configuration}, {number_format.share(share)}"
        for summary in summaries
        if price.per_problem(summary) == 0 and (share := _quality(summary, faster))
    ]
    return f"Cost nothing, so not drawn: {'; '.join(costless)}." if costless else ""


def _quality(summary: Summary, faster: bool) -> Share | None:
    return number_format.at(summary.fast.get("eager", ()), 1.0) if faster else summary.correct


def _axes(drawing: Drawing, along: Log, up: Linear, price: Price) -> None:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawing.line((_LEFT, up(share)), (_RIGHT, up(share)), "base" if share == 0 else "grid")
        drawing.text((_RIGHT + 5, up(share) + 4), f"{100 * share:.0f}" + (" %" if share == 1 else ""), "tick")
    marks = [mark for mark in price.marks if along.low <= mark <= along.high] if price.marks else along.ticks(5)
    for mark in marks[:: 1 + len(marks) // 6]:
        drawing.line((along(mark), _BOTTOM), (along(mark), _BOTTOM + 4), "base")
        drawing.text((along(mark), _BOTTOM + 16), price.text(mark), "tick", "middle")


def _points(
    drawing: Drawing, points: list[tuple[str, float, Share]], scales: tuple[Log, Linear], series: dict[str, int]
) -> None:
    along, up = scales
    places = spread([up(share.value) for *_, share in points], 15.0, _TOP + 4, _BOTTOM - 4)
    for (name, paid, share), y in zip(points, places, strict=True):
        x, kind = along(paid), f"s{series[name]}"
        drawing.line((x, up(share.low)), (x, up(share.high)), f"whisker {kind}")
        drawing.dot((x, up(share.value)), 5, f"dot {kind}", f"{name}: {number_format.share(share)}")
        left = x > (_LEFT + _RIGHT) / 2
        drawing.label((x + (-9 if left else 9), y + 4), name, f"name halo {kind}", 24, "end" if left else "start")
