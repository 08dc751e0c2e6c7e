"""Two configurations on the same problems: how many times faster the second is on each, from worst to best."""

from __future__ import annotations

from markupsafe import Markup

from kforge.metrics.records import Comparison
from kforge.reports import number_format
from kforge.reports.charts.scales import Linear, Log, around, plain
from kforge.reports.charts.svg import Drawing

_WIDTH, _HEIGHT = 400.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 14.0, 360.0, 26.0, 190.0
_CROWD = 80
"""From this many problems on, bars stand for themselves without a dot."""


def paired_chart(comparison: Comparison) -> Markup | None:
    """The chart of a comparison; None where no problem has a time on both sides."""
    timed = [pair for pair in comparison.pairs if pair.ratio]
    known = sorted(((pair.ratio or 1.0, pair.problem) for pair in timed), key=lambda item: item[0])
    same = {pair.problem for pair in timed if pair.same_program}
    if not known:
        return None
    low, high = around([*(ratio for ratio, _ in known), 1.0], margin=1.08, least=1.1)
    up = Log(low, high, _BOTTOM, _TOP)
    along = Linear(0, len(known), _LEFT, _RIGHT)
    better = sum(ratio > 1 for ratio, _ in known)
    title = f"{comparison.b} over {comparison.a}: faster on {better} of {len(known)} problems"
    title += f", the same program on {len(same)}" if same else ""
    drawing = Drawing(_WIDTH, _HEIGHT, title)
    for mark in up.ticks(6):
        drawing.line((_LEFT, up(mark)), (_RIGHT, up(mark)), "grid")
        drawing.text((_RIGHT + 5, up(mark) + 4), plain(mark), "tick")
    drawing.line((_LEFT, up(1.0)), (_RIGHT, up(1.0)), "base")
    width = (_RIGHT - _LEFT) / len(known)
    for place, (ratio, problem) in enumerate(known):
        x, kind = along(place + 0.5), "gain" if ratio > 1 else "loss" if ratio < 1 else "tie"
        hint = f"{problem}: {'the same program' if problem in same else number_format.times(ratio)}"
        if len(known) > _CROWD:
            top, bottom = sorted((up(ratio), up(1.0)))
            drawing.box((x - width / 2, top), (max(width - 0.2, 0.5), max(bottom - top, 0.5)), f"bar {kind}", hint)
        else:
            drawing.line((x, up(1.0)), (x, up(ratio)), f"stem {kind}")
            drawing.dot((x, up(ratio)), min(4.0, max(1.8, width * 0.35)), f"tip {kind}", hint, problem)
    drawing.text((_LEFT, _TOP - 10), f"faster: {comparison.b}"[:60], "axis")
    drawing.text((_LEFT, _BOTTOM + 16), f"faster: {comparison.a}"[:60], "axis")
    drawing.text(
        (_RIGHT, _HEIGHT - 6), f"{number_format.several(len(known), 'problem')}, sorted by ratio", "axis", "end"
    )
    return drawing.finish()
