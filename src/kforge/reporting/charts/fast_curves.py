"""fast_p over p: the share of problems that are correct and more than p times faster, with its interval as a band."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from kforge.measures.records import Point, Summary
from kforge.reporting import wording
from kforge.reporting.charts.drawing import Drawing, spread
from kforge.reporting.charts.scales import Linear, Log, plain

_WIDTH, _HEIGHT = 400.0, 270.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 160.0, 364.0, 22.0, 226.0
_ZERO = 22.0
"""Room left of the log axis, for p = 0."""
_LINE = 15.0
_ROOM = 15


def fast_curves(summaries: Sequence[Summary], against: str, series: dict[str, int]) -> Markup | None:
    """One platform's configurations; None where none of them was timed."""
    curves = {
        summary.configuration: sorted(summary.fast[against], key=lambda point: point.p)
        for summary in summaries
        if summary.fast.get(against)
    }
    if not curves:
        return None
    low, high = _ends(list(curves.values()))
    along, up = Log(low, high, _LEFT + _ZERO, _RIGHT), Linear(0.0, 1.0, _BOTTOM, _TOP)
    baseline = "eager PyTorch" if against == "eager" else "the fastest baseline"
    drawing = Drawing(_WIDTH, _HEIGHT, f"fast_p against {baseline}: " + ", ".join(map(_said, curves.items())))
    _axes(drawing, along, up)
    for name, points in curves.items():
        _band(drawing, points, (along, up), series[name])
    for name, points in curves.items():
        drawing.path(_steps(points, along, up), f"curve s{series[name]}")
    _labels(drawing, curves, up, series)
    drawing.text(((_LEFT + _RIGHT) / 2, _HEIGHT - 8), f"p: times faster than {baseline}", "axis", "middle")
    return drawing.finish()


def _ends(curves: list[list[Point]]) -> tuple[float, float]:
    """From where curves begin to fall to where they end; 0.5 and 2 are always there."""
    positive = [point for points in curves for point in points if point.p > 0]
    top = max((point.p for point in positive if point.share.value > 0), default=2.0)
    full = {id(points): points[0].share.value for points in curves}
    begun = [
        point.p for points in curves for point in points if point.p > 0 and point.share.value < full[id(points)] - 1e-9
    ]
    low = min(0.5, min(begun, default=0.5) / 1.1)
    return max(low, 0.05), max(2.0, top * 1.15)


def _axes(drawing: Drawing, along: Log, up: Linear) -> None:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawing.line((_LEFT, up(share)), (_RIGHT, up(share)), "base" if share == 0 else "grid")
        drawing.text((_RIGHT + 5, up(share) + 4), f"{100 * share:.0f}" + (" %" if share == 1 else ""), "tick")
    drawing.text((_LEFT, _BOTTOM + 16), "0", "tick", "middle")
    for x in (_LEFT + _ZERO / 2 - 2, _LEFT + _ZERO / 2 + 2):
        drawing.line((x - 2, _BOTTOM + 4), (x + 2, _BOTTOM - 4), "base")
    for mark in along.ticks(5):
        drawing.line((along(mark), _BOTTOM), (along(mark), _BOTTOM + 4), "base")
        drawing.text((along(mark), _BOTTOM + 16), plain(mark), "tick", "middle")
    drawing.line((along(1.0), _TOP), (along(1.0), _BOTTOM), "even")
    drawing.text((along(1.0), _TOP - 8), "as fast", "tick", "middle")


def _steps(points: list[Point], along: Log, up: Linear, edge: str = "value") -> list[tuple[float, float]]:
    """The share holds from one p to the next, where it falls."""
    places: list[tuple[float, float]] = []
    for point in points:
        if point.p > along.high * 1.001:
            break
        x = _LEFT if point.p <= 0 else along(max(point.p, along.low))
        y = up(getattr(point.share, edge))
        if places:
            places.append((x, places[-1][1]))
        places.append((x, y))
    if places and places[-1][0] < _RIGHT:
        places.append((_RIGHT, places[-1][1]))
    return places


def _band(drawing: Drawing, points: list[Point], scales: tuple[Log, Linear], number: int) -> None:
    upper, lower = _steps(points, *scales, "high"), _steps(points, *scales, "low")
    drawing.path([*upper, *reversed(lower)], f"band s{number}", closed=True)


def _labels(drawing: Drawing, curves: dict[str, list[Point]], up: Linear, series: dict[str, int]) -> None:
    """Each curve's name where it begins: at the share of correct programs."""
    begins = [up(points[0].share.value) for points in curves.values()]
    for (name, points), wanted, y in zip(curves.items(), begins, spread(begins, _LINE, _TOP, _BOTTOM), strict=True):
        drawing.line((_LEFT - 8, y), (_LEFT, wanted), f"lead s{series[name]}")
        drawing.label((_LEFT - 46, y + 4), name, f"name s{series[name]}", _ROOM, "end")
        drawing.text((_LEFT - 11, y + 4), wording.percent(points[0].share.value).replace(" ", ""), "worth", "end")


def _said(curve: tuple[str, list[Point]]) -> str:
    name, points = curve
    at = wording.at(points, 1.0)
    return f"{name} {wording.percent(points[0].share.value)} correct, {wording.share(at)} faster"
