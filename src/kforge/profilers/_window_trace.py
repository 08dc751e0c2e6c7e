"""A Chrome trace as rows of bars: who ran what, when, inside what. Everything in it is checked and made anew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kforge.profilers._kernel_names import short_name

CALL = "kforge_call"
"""The name of the annotation around each call."""
NATIVE = "native: "
"""What the name of a range around a program's own function begins with."""
_DEVICE = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy"}
_HOST = {"cpu_op": "operator", "cuda_runtime": "launch", "cuda_driver": "launch", "user_annotation": "range"}
_ON_DEVICE_TOO = "gpu_user_annotation"
_SHOWN_CALLS = 3
_MOST_BARS = 20_000
_LONGEST_NAME = 80


@dataclass(frozen=True)
class Bar:
    """Something that ran; times in nanoseconds since the first call began."""

    row: int
    depth: int
    """How many others of its row it is inside of."""
    start: float
    length: float
    own: float
    """The part of the length in which nothing inside it ran."""
    name: str
    kind: str
    """kernel, copy, native, operator, launch, range, call."""

    @property
    def end(self) -> float:
        return self.start + self.length


@dataclass(frozen=True)
class Timeline:
    """What a trace shows."""

    rows: tuple[str, ...]
    """Streams of a device first, then threads, each the busiest first."""
    bars: tuple[Bar, ...]
    calls: tuple[tuple[float, float], ...]
    """Start and end of each call."""
    on_device: bool
    """Whether something ran on a device; if not, the work is what ran on the processor."""
    left_out: int = 0
    """Bars that there was no room for, the shortest."""

    @property
    def work(self) -> tuple[Bar, ...]:
        """The bars whose time counts: on the device if there is one, otherwise functions and operators."""
        kinds = ("kernel", "copy") if self.on_device else ("native", "operator")
        return tuple(bar for bar in self.bars if bar.kind in kinds)

    @property
    def middle(self) -> tuple[float, float]:
        """The call in the middle by its length."""
        return sorted(self.calls, key=lambda call: call[1] - call[0])[len(self.calls) // 2]


@dataclass(frozen=True)
class Total:
    """All bars of one name in one call."""

    name: str
    times: int
    own: float
    longest: Bar


def timeline(events: list[dict[str, Any]], left_out: int = 0) -> Timeline:
    """The events as bars; ValueError if nothing of it can be shown."""
    seen = [(event, *_span(event)) for event in events if event.get("ph", "X") == "X"]
    calls = sorted((start, end) for event, start, end in seen if _is_call(event))
    calls = _quietest_calls(calls)
    if not calls and seen:
        calls = [(min(start for _, start, _ in seen), max(end for _, _, end in seen))]
    if not calls or calls[-1][1] <= calls[0][0]:
        raise ValueError("a trace without a call")
    inside = [item for item in seen if any(item[1] < end and item[2] > start for start, end in calls)]
    inside.sort(key=lambda item: item[1] - item[2])
    kept = [item for item in inside[:_MOST_BARS] if item[0].get("cat") != _ON_DEVICE_TOO]
    rows = _rows([event for event, _, _ in kept])
    origin = calls[0][0]
    bars: list[Bar] = []
    for number, (key, _) in enumerate(rows):
        bars += _nest(number, [item for item in kept if _key(item[0]) == key], origin)
    return Timeline(
        tuple(name for _, name in rows),
        tuple(bars),
        tuple((start - origin, end - origin) for start, end in calls),
        any(bar.kind == "kernel" for bar in bars),
        left_out + max(0, len(inside) - _MOST_BARS),
    )


def totals(seen: Timeline) -> list[Total]:
    """The work of the middle call by name, the costliest first."""
    groups: dict[str, list[Bar]] = {}
    start, end = seen.middle
    for bar in seen.work:
        if start <= bar.start < end:
            groups.setdefault(bar.name, []).append(bar)
    by_name = [
        Total(name, len(bars), sum(bar.own for bar in bars), max(bars, key=lambda bar: bar.own))
        for name, bars in groups.items()
    ]
    return sorted(by_name, key=lambda total: (-total.own, total.name))


def busy(seen: Timeline) -> float:
    """Time of the middle call in which some of the work ran, counted once however much ran at once."""
    start, end = seen.middle
    total, reached = 0.0, start
    for bar in sorted(seen.work, key=lambda bar: bar.start):
        total += max(0.0, min(bar.end, end) - max(bar.start, reached))
        reached = max(reached, min(bar.end, end))
    return total


def _quietest_calls(calls: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """As many calls in a row as are shown: those that were over soonest, since the machine may be busy with others."""
    runs = [calls[number : number + _SHOWN_CALLS] for number in range(max(1, len(calls) - _SHOWN_CALLS + 1))]
    return min(runs, key=lambda run: sum(end - start for start, end in run))


def _nest(row: int, items: list[tuple[dict[str, Any], float, float]], origin: float) -> list[Bar]:
    """The bars of one row, each under those it is inside of."""
    open_bars: list[list[Any]] = []
    made: list[list[Any]] = []
    for event, start, end in sorted(items, key=lambda item: (item[1], -item[2])):
        while open_bars and open_bars[-1][2] <= start:
            open_bars.pop()
        if open_bars:
            parent = open_bars[-1]
            parent[3] -= max(0.0, min(end, parent[2]) - start)
        entry = [event, start, end, end - start, len(open_bars)]
        made.append(entry)
        open_bars.append(entry)
    return [
        Bar(row, depth, start - origin, end - start, max(0.0, own), _name(event), _kind(event))
        for event, start, end, own, depth in made
    ]


def _rows(events: list[dict[str, Any]]) -> list[tuple[tuple[Any, ...], str]]:
    """Key and name of each row: the device's streams, then threads, the busiest first."""
    lengths: dict[tuple[Any, ...], float] = {}
    for event in events:
        lengths[_key(event)] = lengths.get(_key(event), 0.0) + float(event.get("dur", 0.0))
    keys = sorted(lengths, key=lambda key: (not key[0], -lengths[key], key))
    threads = [key for key in keys if not key[0]]
    named = []
    for key in keys:
        if key[0]:
            named.append((key, f"GPU {_word(key[1])}, stream {_word(key[2])}"))
        else:
            named.append((key, "CPU thread" if len(threads) == 1 else f"CPU thread {threads.index(key) + 1}"))
    return named


def _key(event: dict[str, Any]) -> tuple[Any, ...]:
    """Which row an event belongs to: whether on a device, and where there."""
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    if event.get("cat") in _DEVICE:
        return True, _word(arguments.get("device", 0)), _word(arguments.get("stream", event.get("tid")))
    return False, _word(event.get("pid")), _word(event.get("tid"))


def _kind(event: dict[str, Any]) -> str:
    if _is_call(event):
        return "call"
    if str(event.get("name", "")).startswith(NATIVE):
        return "native"
    return _DEVICE.get(str(event.get("cat"))) or _HOST.get(str(event.get("cat"))) or "range"


def _name(event: dict[str, Any]) -> str:
    name = str(event.get("name", ""))
    if _is_call(event):
        return "a call of the program"
    if event.get("cat") == "kernel":
        return short_name(name)
    if event.get("cat") in _DEVICE:
        name = name.partition("(")[0]
    return _word(name.removeprefix(NATIVE)) or "unnamed"


def _is_call(event: dict[str, Any]) -> bool:
    return event.get("cat") == "user_annotation" and event.get("name") == CALL


def _word(value: Any) -> str:
    """A value as a label: printable, short."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value).strip()[:_LONGEST_NAME])


def _span(event: dict[str, Any]) -> tuple[float, float]:
    """Start and end in nanoseconds."""
    start, length = _number(event.get("ts")), _number(event.get("dur", 0.0))
    if length < 0:
        raise ValueError("a time that is none")
    return 1000.0 * start, 1000.0 * (start + length)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("a time that is none")
    return float(value)
