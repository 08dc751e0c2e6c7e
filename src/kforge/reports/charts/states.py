"""How chains stood after each program: shares stacked by state, correct at the bottom."""

from __future__ import annotations

from markupsafe import Markup

from kforge.metrics.records import Iteration, Summary
from kforge.reports import number_format
from kforge.reports.charts.scales import Linear
from kforge.reports.charts.svg import Drawing

_WIDTH, _HEIGHT = 280.0, 190.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 8.0, 244.0, 12.0, 144.0
_WIDEST = 44.0


def states(summary: Summary, own: bool) -> Markup | None:
    """Shares by the best state reached so far, or of the programs of that number alone; None without a program."""
    columns = [(iteration.number, _shares(iteration, own)) for iteration in summary.iterations]
    columns = [(number, shares) for number, shares in columns if shares]
    if not columns:
        return None
    counts = {iteration.number: sum(iteration.own.values()) for iteration in summary.iterations}
    shares_text = ", ".join(
        f"{number}: {number_format.percent(shares.get('correct', 0.0))}" for number, shares in columns
    )
    drawing = Drawing(_WIDTH, _HEIGHT, f"correct after program {shares_text}")
    up = Linear(0.0, 1.0, _BOTTOM, _TOP)
    for share in (0.0, 0.5, 1.0):
        drawing.line((_LEFT, up(share)), (_RIGHT, up(share)), "base" if share == 0 else "grid")
        drawing.text((_RIGHT + 5, up(share) + 4), f"{100 * share:.0f}" + (" %" if share == 1 else ""), "tick")
    step = (_RIGHT - _LEFT) / len(columns)
    crowded = max(1, round(len(columns) / 10))
    for place, (number, shares) in enumerate(columns):
        middle = _LEFT + step * (place + 0.5)
        _column(drawing, up, middle, min(_WIDEST, step * 0.78), shares)
        if place % crowded == 0:
            drawing.text((middle, _BOTTOM + 15), str(number), "tick", "middle")
            if own and crowded == 1:
                drawing.text((middle, _BOTTOM + 28), f"n {counts[number]}", "tick faint", "middle")
    drawing.text(((_LEFT + _RIGHT) / 2, _HEIGHT - 5), "program number", "axis", "middle")
    return drawing.finish()


def _shares(iteration: Iteration, own: bool) -> dict[str, float]:
    if not own:
        return iteration.reached
    total = sum(iteration.own.values())
    return {state: count / total for state, count in iteration.own.items()} if total else {}


def _column(drawing: Drawing, up: Linear, middle: float, width: float, shares: dict[str, float]) -> None:
    floor = 0.0
    for state in number_format.STATES:
        share = shares.get(state, 0.0)
        if share <= 0:
            continue
        top, bottom = up(floor + share), up(floor)
        hint = f"{number_format.state(state)}: {number_format.percent(share)}"
        drawing.box((middle - width / 2, top), (width, max(bottom - top - 0.7, 0.4)), f"state {state}", hint)
        if state == "correct" and bottom - top > 15 and width > 24:
            drawing.text((middle, top + 12), f"{100 * share:.0f}", "inside", "middle")
        floor += share
