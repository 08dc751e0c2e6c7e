"""A Chrome trace of a few calls, read: what ran on the device, for how long, and whose it was."""

from __future__ import annotations

import bisect
import gzip
import io
import json
import math
from dataclasses import dataclass, field
from typing import Any

from kforge.profilers._kernel_names import LONGEST, is_library, short_name

CALL = "kforge_call"
"""The name of the annotation around each call."""
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHING = ("cuda_runtime", "cuda_driver")
_MOST_BYTES = 64 << 20
_MOST_EVENTS = 100_000


@dataclass(frozen=True)
class TraceActivity:
    """Something that ran on the device; times in nanoseconds."""

    name: str
    start: float
    length: float
    copy: bool
    """A copy or a fill, no kernel."""
    library: bool
    """Launched by an operator of torch's, or by a library of that name."""

    @property
    def end(self) -> float:
        return self.start + self.length


@dataclass
class TraceCall:
    """One call of the program."""

    start: float
    end: float
    activities: list[TraceActivity] = field(default_factory=list)
    launching_ns: float = 0.0
    """Time the processor spent in launching."""

    @property
    def kernels(self) -> list[TraceActivity]:
        return [activity for activity in self.activities if not activity.copy]

    @property
    def busy_ns(self) -> float:
        """Time in which something ran on the device, counted once however much ran at once."""
        total, reached = 0.0, -math.inf
        for activity in sorted(self.activities, key=lambda item: item.start):
            total += max(0.0, activity.end - max(activity.start, reached))
            reached = max(reached, activity.end)
        return total

    @property
    def span_ns(self) -> float:
        """The time from the first activity's start to the last one's end."""
        if not self.activities:
            return 0.0
        return max(item.end for item in self.activities) - min(item.start for item in self.activities)


def unpack(data: bytes) -> list[dict[str, Any]]:
    """The events of a compressed trace of ordinary size; ValueError if it is none."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError("the trace is too large")
        events = json.loads(text)["traceEvents"]
    except (OSError, EOFError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no trace ({type(error).__name__})") from None
    if not isinstance(events, list):
        raise ValueError("no trace")
    return [event for event in events[:_MOST_EVENTS] if isinstance(event, dict)]


def calls(events: list[dict[str, Any]]) -> list[TraceCall]:
    """The annotated calls, in order, each with what it ran on the device."""
    annotated = [event for event in events if event.get("cat") == "user_annotation" and event.get("name") == CALL]
    ordered = sorted((TraceCall(*_span(event)) for event in annotated), key=lambda call: call.start)
    launches = [event for event in events if event.get("cat") in _LAUNCHING]
    by_correlation = {_correlation(event): event for event in launches if _correlation(event) is not None}
    library = _Operators([event for event in events if event.get("cat") == "cpu_op"])
    for event in events:
        if event.get("cat") not in _ON_DEVICE:
            continue
        launch = by_correlation.get(_correlation(event))
        start, end = _span(event)
        call = _call_at(ordered, _span(launch)[0] if launch is not None else start)
        if call is not None and end > start:
            name = str(event.get("name", ""))
            copy = event.get("cat") != "kernel"
            whose = is_library(name) or (launch is not None and library.is_inside_operator(launch))
            plain = _transfer(name) if copy else short_name(name)
            call.activities.append(TraceActivity(plain, start, end - start, copy, whose))
    for event in launches:
        call = _call_at(ordered, _span(event)[0])
        if call is not None and "launch" in str(event.get("name", "")).lower():
            start, end = _span(event)
            call.launching_ns += end - start
    return ordered


def _transfer(name: str) -> str:
    """`Memcpy DtoH (Device -> Pageable)` -> `Memcpy DtoH`."""
    return "".join(letter for letter in name.partition("(")[0] if letter.isalnum() or letter == " ").strip()[:LONGEST]


class _Operators:
    """Torch's own operators on the processor: whether one of them is around something."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._spans: dict[Any, list[tuple[float, float]]] = {}
        for event in events:
            if str(event.get("name", "")).startswith("aten::"):
                self._spans.setdefault(event.get("tid"), []).append(_span(event))
        for spans in self._spans.values():
            spans.sort()
            # The furthest end so far: operators nest, so a later one may end before an earlier one.
            reached = -math.inf
            for number, (start, end) in enumerate(spans):
                reached = max(reached, end)
                spans[number] = (start, reached)

    def is_inside_operator(self, event: dict[str, Any]) -> bool:
        spans = self._spans.get(event.get("tid"), [])
        start, _ = _span(event)
        before = bisect.bisect_right(spans, (start, math.inf)) - 1
        return before >= 0 and spans[before][1] > start


def _call_at(calls: list[TraceCall], moment: float) -> TraceCall | None:
    return next((call for call in calls if call.start <= moment <= call.end), None)


def _span(event: dict[str, Any]) -> tuple[float, float]:
    """Start and end in nanoseconds."""
    start, length = event.get("ts", 0.0), event.get("dur", 0.0)
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in (start, length)) or length < 0:
        raise ValueError("a time that is none")
    return 1000 * start, 1000 * (start + length)


def _correlation(event: dict[str, Any]) -> Any:
    arguments = event.get("args")
    number = arguments.get("correlation") if isinstance(arguments, dict) else None
    return number if isinstance(number, int) and number > 0 else None
