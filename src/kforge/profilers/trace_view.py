"""A few calls in a trace viewer: pictures of the whole and of the longest kernels, and a page to look at oneself."""

from __future__ import annotations

import base64
import importlib.util
from typing import Any

from kforge.profilers import _browser, _trace_events
from kforge.profilers._format import percent, time
from kforge.profilers._window_page import TraceWindow, page, views
from kforge.profilers._window_trace import Timeline, busy, timeline, totals
from kforge.profilers.base import Profiler, ProfilingContext
from kforge.types import Artefact, Image, Profile

PAGE = "trace.html"
"""The artefact to open in a browser."""
_CALLS = 5
_ROWS = 10
_MOST_RAW = 2 << 20


class TraceView(Profiler):
    name = "trace_view"
    what = "pictures of a trace: the calls over time, the longest kernels (any device)"
    probe_file = "_window_probe.py"
    pictures = True

    def unavailable_reason(self) -> str:
        if not importlib.util.find_spec("torch"):
            return "torch is not installed"
        return _browser.unavailable_reason()

    def collect(self, context: ProfilingContext) -> Profile:
        reply = context.ask({"calls": _CALLS, "device": context.platform.device})
        return profile_of(reply, f"{context.problem.name} on {context.platform.name}")


def profile_of(reply: dict[str, Any], title: str) -> Profile:
    """The profile of the probe's answer; ValueError, KeyError or TypeError if it makes no sense."""
    data = base64.b64decode(str(reply["trace"]), validate=True)
    seen = timeline(_trace_events.unpack(data), max(0, int(reply.get("left_out", 0))))
    shown, made = views(seen), page(seen, title)
    images: tuple[Image, ...] = ()
    trouble = ""
    try:
        images = _browser.pictures(made, [f"view={number}&still" for number in range(len(shown))])
    except _browser.NoPicture as error:
        trouble = f"no pictures: {error}"
    whole = made.encode()
    raw = [Artefact(PAGE, "text/html", whole)] if len(whole) <= _MOST_RAW else []
    if len(data) <= _MOST_RAW:
        raw.append(Artefact("trace.json.gz", "application/gzip", data))
    return Profile("trace_view", metrics(seen), text(seen, shown, trouble), images, raw=tuple(raw))


def metrics(seen: Timeline) -> dict[str, float]:
    start, end = seen.middle
    work = sum(total.own for total in totals(seen))
    numbers = {
        "calls": float(len(seen.calls)),
        "call_ns": end - start,
        "busy_share": busy(seen) / (end - start),
        "launches": float(sum(total.times for total in totals(seen))),
    }
    if work:
        numbers["longest_share"] = totals(seen)[0].own / work
    return numbers


def text(seen: Timeline, shown: list[TraceWindow], trouble: str = "") -> str:
    """What the pictures show, in words: for models that see none, and to name places in them."""
    start, end = seen.middle
    where = "the device" if seen.on_device else "the processor, in functions and operators,"
    lines = [
        f"a call takes {time(end - start)} under the profiler; {where} works for {percent(busy(seen) / (end - start))} "
        "of it, the rest is waiting, Python and allocation",
        f"{'share':>6} {'a call':>8} {'times':>6} {'begins at':>10}  the longest of a call",
    ]
    work = sum(total.own for total in totals(seen)) or 1.0
    for total in totals(seen)[:_ROWS]:
        begins = time(max(0.0, total.longest.start - start))
        lines.append(f"{percent(total.own / work):>6} {time(total.own):>8} {total.times:>6} {begins:>10}  {total.name}")
    if trouble:
        lines.append(trouble)
    else:
        lines += [f"picture {number}: {view.title}" for number, view in enumerate(shown, start=1)]
    if seen.left_out:
        lines.append(f"{seen.left_out} events of the trace were left out")
    return "\n".join(lines)


PLUGIN = TraceView()
