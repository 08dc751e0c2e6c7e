"""The trace viewer's page for one timeline: our own, whole in one file, which loads nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge.profilers._format import percent, time
from kforge.profilers._window_trace import Timeline, Total, busy, totals

_TEMPLATE = Path(__file__).parent / "viewer" / "trace.html"
_MARK = "@TRACE@"
_NAMED = 8
_ZOOMS = 2
_MARGIN = 0.5
_WORTH_A_CALL = 4
"""Bars of work from which on one call gets a picture of its own."""
_WORTH_A_ZOOM = 0.05
"""The least share of a call's work for a picture of its own."""


@dataclass(frozen=True)
class TraceWindow:
    """A part of the trace worth a picture."""

    title: str
    start: float
    end: float
    marked: int = -1
    """The bar that it is about; -1 for none."""


def views(seen: Timeline) -> list[TraceWindow]:
    """The whole, one call if much happens in it, then each of the longest kernels with what is around it."""
    calls = f"{len(seen.calls)} calls" if len(seen.calls) > 1 else "one call"
    windows = [_around(f"Overview: {calls}", 0.0, max(end for _, end in seen.calls))]
    ranked = totals(seen)
    if len(seen.calls) > 1 and sum(total.times for total in ranked) >= _WORTH_A_CALL:
        windows.append(_around("One call", *seen.middle))
    work = sum(total.own for total in ranked)
    for number, total in enumerate(ranked[:_ZOOMS], start=1):
        if total.own >= _WORTH_A_ZOOM * work and total.longest.length:
            windows.append(_zoom(seen, total, number, work))
    return windows


def _around(title: str, start: float, end: float) -> TraceWindow:
    margin = 0.02 * (end - start)
    return TraceWindow(title, start - margin, end + margin)


def _zoom(seen: Timeline, total: Total, number: int, work: float) -> TraceWindow:
    bar, call = total.longest, _around("", *seen.middle)
    title = f"Zoom on {number} {total.name}: {percent(total.own / work)} of the work of a call"
    start, end = bar.start - _MARGIN * bar.length, bar.end + _MARGIN * bar.length
    return TraceWindow(
        title, max(start, min(call.start, bar.start)), min(end, max(call.end, bar.end)), seen.bars.index(bar)
    )


def page(seen: Timeline, title: str) -> str:
    """The page as a file's text."""
    # JSON inside a script element: no "<" in it, so nothing in a name can end the element.
    text = json.dumps(_data(seen, title), separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    before, after = _TEMPLATE.read_text(encoding="utf-8").split(_MARK)
    return before + text + after


def _data(seen: Timeline, title: str) -> dict[str, Any]:
    names = {name: number for number, name in enumerate(dict.fromkeys(bar.name for bar in seen.bars))}
    ranked = totals(seen)
    work = sum(total.own for total in ranked) or 1.0
    shown = views(seen)
    device = {bar.row for bar in seen.bars if bar.kind in ("kernel", "copy")}
    start, end = seen.middle
    what = "Longest kernels and copies on the device" if seen.on_device else "Longest functions and operators"
    works = f"{'the device' if seen.on_device else 'they'} work{'s' if seen.on_device else ''}"
    left_out = f"; the {seen.left_out} shortest bars are left out" if seen.left_out else ""
    return {
        "title": title,
        "heading": (
            f"{what}, share of their own time; a call takes {time(end - start)} here, {works} for "
            f"{percent(busy(seen) / (end - start))} of it{left_out}"
        ),
        "rows": [
            {
                "name": name,
                "device": number in device,
                "what": "kernels, copies" if number in device else "what called what",
            }
            for number, name in enumerate(seen.rows)
        ],
        "names": list(names),
        "bars": [
            [
                bar.row,
                bar.depth,
                round(bar.start, 1),
                round(bar.length, 1),
                names[bar.name],
                bar.kind,
                round(bar.own, 1),
            ]
            for bar in seen.bars
        ],
        "calls": [[start, end] for start, end in seen.calls],
        "work": sorted({bar.kind for bar in seen.work}),
        "from": shown[0].start,
        "to": shown[0].end,
        "views": [{"title": view.title, "from": view.start, "to": view.end, "marked": view.marked} for view in shown],
        "legend": [
            {
                "name": total.name,
                "own": total.own,
                "times": total.times,
                "share": total.own / work,
                "longest": seen.bars.index(total.longest),
            }
            for total in ranked[:_NAMED]
        ],
    }
