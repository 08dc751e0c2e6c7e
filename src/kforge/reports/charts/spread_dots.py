"""Every speedup of every configuration: a dot for each problem, on a log axis."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from markupsafe import Markup

from kforge.metrics.records import Mean
from kforge.reports import number_format
from kforge.reports.charts.scales import Log, around, plain
from kforge.reports.charts.svg import Drawing

_WIDTH = 400.0
_LEFT, _RIGHT, _TOP = 12.0, 388.0, 20.0
_HEAD, _MOST = 20.0, 64.0
"""A row's head, and the most that its dots may take."""


@dataclass(frozen=True)
class SpreadRow:
    """One configuration's correct programs."""

    name: str
    series: int
    speedups: tuple[tuple[str, float], ...]
    """Problem and speedup."""
    mean: Mean | None
    of: int
    """How many problems there were."""


def spread_dots(rows: list[SpreadRow], against: str) -> Markup | None:
    """The chart of all rows; None where nothing was timed."""
    values = [speedup for row in rows for _, speedup in row.speedups]
    if not values:
        return None
    low, high = around([*values, 1.0])
    along = Log(low, high, _LEFT + 4, _RIGHT - 4)
    radius = 3.4 if len(values) <= 60 * len(rows) else 2.2
    stacks = [_stack(row, along, radius) for row in rows]
    heights = [
        _HEAD + max(18.0, min(_MOST, max((level for *_, level in stack), default=0) * radius * 2 + 10))
        for stack in stacks
    ]
    bottom = _TOP + sum(heights)
    baseline = "eager PyTorch" if against == "eager" else "the fastest baseline"
    drawing = Drawing(_WIDTH, bottom + 40, f"Speedups of correct programs against {baseline}: " + _means_text(rows))
    _axis(drawing, along, bottom)
    floor = _TOP
    for row, stack, height in zip(rows, stacks, heights, strict=True):
        floor += height
        _row(drawing, row, (floor - height, floor), along)
        tallest = max((level for *_, level in stack), default=0)
        squeeze = min(1.0, (height - _HEAD - 10) / max(tallest * radius * 2, 1.0))
        for problem, speedup, x, level in stack:
            y = floor - 7 - level * radius * 2 * squeeze
            drawing.dot((x, y), radius, f"dot s{row.series}", f"{problem}: {number_format.times(speedup)}", problem)
    drawing.text(((_LEFT + _RIGHT) / 2, bottom + 34), f"times faster than {baseline}", "axis", "middle")
    return drawing.finish()


def _stack(row: SpreadRow, along: Log, radius: float) -> list[tuple[str, float, float, int]]:
    """Problem, speedup, place and how many dots lie below it."""
    heights: Counter[int] = Counter()
    dots = []
    for problem, speedup in sorted(row.speedups, key=lambda item: item[1]):
        column = round(along(speedup) / (radius * 2))
        dots.append((problem, speedup, column * radius * 2, heights[column]))
        heights[column] += 1
    return dots


def _axis(drawing: Drawing, along: Log, bottom: float) -> None:
    for mark in along.ticks(7):
        drawing.line((along(mark), _TOP), (along(mark), bottom), "grid")
        drawing.text((along(mark), bottom + 15), plain(mark), "tick", "middle")
    drawing.line((along(1.0), _TOP - 4), (along(1.0), bottom), "even")
    drawing.text((along(1.0), _TOP - 8), "as fast", "tick", "middle")


def _row(drawing: Drawing, row: SpreadRow, ends: tuple[float, float], along: Log) -> None:
    top, bottom = ends
    drawing.line((_LEFT, bottom), (_RIGHT, bottom), "base")
    drawing.label((_LEFT, top + 14), row.name, f"name halo s{row.series}", 28)
    drawing.text((_RIGHT, top + 14), f"{len(row.speedups)} of {row.of} correct and timed", "tick halo", "end")
    if row.mean is not None:
        drawing.line((along(row.mean.low), bottom), (along(row.mean.high), bottom), f"whisker s{row.series}")
        place = along(row.mean.value)
        drawing.path(
            [(place, bottom - 1), (place - 5, bottom + 7), (place + 5, bottom + 7)], f"mean s{row.series}", True
        )


def _means_text(rows: list[SpreadRow]) -> str:
    return ", ".join(f"{row.name} mean {number_format.mean(row.mean)}" for row in rows)
