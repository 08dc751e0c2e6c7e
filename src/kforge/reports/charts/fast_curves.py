"""fast_p over p: the share of problems that are correct and more than p times faster, with its interval as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kforge.metrics.records import Against, Point, Summary
from kforge.reports import number_format
from kforge.reports.charts.scales import Linear, Log, plain
from kforge.reports.charts.svg import Drawing, spread
from kforge.reports.findings import any_timed

_WIDTH, _HEIGHT = 400.0, 270.0
_RIGHT, _TOP, _BOTTOM = 364.0, 22.0, 226.0
_ZERO = 22.0
"""Room left of the log axis, for p = 0."""
_LINE, _LETTER, _ROOM = 15.0, 7.6, 15
"""A label's height, the width of its letters, and how many it may have."""
_WORTH = 46.0
"""Room for a share, between a label and its curve."""


@dataclass(frozen=True)
class _Plot:
    """Where things are drawn."""

    left: float
    along: Log
    up: Linear


def fast_curves(summaries: Sequence[Summary], against: Against, series: dict[str, int]) -> Markup | None:
    """The chart of one platform's configurations; None where none of them was timed."""
    curves = {
        summary.configuration: sorted(summary.fast[against], key=lambda point: point.p)
        for summary in summaries
        if summary.fast.get(against)
    }
    if not any_timed(summaries, against):
        return None
    left = _WORTH + _LETTER * min(_ROOM, max(map(len, curves)))
    low, high = _ends(list(curves.values()))
    plot = _Plot(left, Log(low, high, left + _ZERO, _RIGHT), Linear(0.0, 1.0, _BOTTOM, _TOP))
    baseline = "eager PyTorch" if against == "eager" else "the fastest baseline"
    drawing = Drawing(_WIDTH, _HEIGHT, f"fast_p against {baseline}: " + ", ".join(map(_curve_text, curves.items())))
    _axes(drawing, plot)
    for name, points in curves.items():
        band = [*_steps(points, plot, "high"), *reversed(_steps(points, plot, "low"))]
        drawing.path(band, f"band s{series[name]}", closed=True)
    for name, points in curves.items():
        drawing.path(_steps(points, plot), f"curve s{series[name]}")
    _labels(drawing, curves, plot, series)
    drawing.text(((left + _RIGHT) / 2, _HEIGHT - 8), f"p: times faster than {baseline}", "axis", "middle")
    return drawing.finish()


def _ends(curves: list[list[Point]]) -> tuple[float, float]:
    """The axis's ends, from where curves begin to fall to where they end; 0.5 and 2 are always there."""
    top = max((point.p for points in curves for point in points if point.share.value > 0), default=2.0)
    fallen = [
        point.p
        for points in curves
        for point in points
        if point.p > 0 and point.share.value < points[0].share.value - 1e-9
    ]
    return max(0.05, min(0.5, min(fallen, default=0.5) / 1.1)), max(2.0, top * 1.15)


def _axes(drawing: Drawing, plot: _Plot) -> None:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = plot.up(share)
        drawing.line((plot.left, y), (_RIGHT, y), "base" if share == 0 else "grid")
        drawing.text((_RIGHT + 5, y + 4), f"{100 * share:.0f}" + (" %" if share == 1 else ""), "tick")
    drawing.text((plot.left, _BOTTOM + 16), "0", "tick", "middle")
    for x in (plot.left + _ZERO / 2 - 2, plot.left + _ZERO / 2 + 2):
        drawing.line((x - 2, _BOTTOM + 4), (x + 2, _BOTTOM - 4), "base")
    for mark in plot.along.ticks(5):
        x = plot.along(mark)
        drawing.line((x, _BOTTOM), (x, _BOTTOM + 4), "base")
        drawing.text((x, _BOTTOM + 16), plain(mark), "tick", "middle")
    even = plot.along(1.0)
    drawing.line((even, _TOP), (even, _BOTTOM), "even")
    drawing.text((even, _TOP - 8), "as fast", "tick", "middle")


def _steps(points: list[Point], plot: _Plot, edge: str = "value") -> list[tuple[float, float]]:
    """A curve's corners: the share holds from one p to the next, where it falls."""
    places: list[tuple[float, float]] = []
    for point in points:
        if point.p > plot.along.high * 1.001:
            break
        x = plot.left if point.p <= 0 else plot.along(point.p)
        y = plot.up(getattr(point.share, edge))
        if places:
            places.append((x, places[-1][1]))
        places.append((x, y))
    if places and places[-1][0] < _RIGHT:
        places.append((_RIGHT, places[-1][1]))
    return places


def _labels(drawing: Drawing, curves: dict[str, list[Point]], plot: _Plot, series: dict[str, int]) -> None:
    """Each curve's name where it begins: at the share of correct programs."""
    begins = [plot.up(points[0].share.value) for points in curves.values()]
    placed = spread(begins, _LINE, _TOP, _BOTTOM)
    for (name, points), wanted, y in zip(curves.items(), begins, placed, strict=True):
        drawing.line((plot.left - 8, y), (plot.left, wanted), f"lead s{series[name]}")
        drawing.label((plot.left - _WORTH, y + 4), name, f"name s{series[name]}", _ROOM, "end")
        share = number_format.percent(points[0].share.value).replace(" ", "")
        drawing.text((plot.left - 11, y + 4), share, "worth", "end")


def _curve_text(curve: tuple[str, list[Point]]) -> str:
    name, points = curve
    at = number_format.at(points, 1.0)
    return f"{name} {number_format.percent(points[0].share.value)} correct, {number_format.share(at)} faster"
