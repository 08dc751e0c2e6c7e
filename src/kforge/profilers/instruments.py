"""Instruments on macOS: what a call runs on the GPU by `xctrace`, and pictures of the trace in its window."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kforge.profilers import _window_driver as driving
from kforge.profilers import _xctrace_record as xctrace
from kforge.profilers._format import percent, time
from kforge.profilers._xctrace_table import Row, rows, schemas
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Image, Profile

_INTERVALS = "metal-gpu-intervals"
_ROWS = 12
_LONGEST_NAME = 80
_XCODE = "install Xcode from the App Store, then: sudo xcode-select --switch /Applications/Xcode.app"


class Instruments(Profiler):
    name = "instruments"
    what = "Metal work on the GPU over time, with pictures of Instruments' window (macOS)"
    probe_file = "_calls_probe.py"
    pictures = True

    def unavailable_reason(self) -> str:
        if platform.system() != "Darwin":
            return "needs macOS"
        if shutil.which("xcrun") is None:
            return f"xcrun is not installed ({_XCODE})"
        done = subprocess.run(["xcrun", "--find", "xctrace"], capture_output=True, text=True, check=False)
        return f"xctrace is not installed ({_XCODE})" if done.returncode else ""

    def collect(self, context: ProfilingContext) -> Profile:
        if context.platform.device != "mps":
            raise NothingSeen(
                f"instruments looks at Metal on a Mac's GPU; platform {context.platform.name} does not use it"
            )
        calls = 0

        def call() -> None:
            nonlocal calls
            calls = int(context.ask({"seconds": float(xctrace.SECONDS)})["calls"])

        context.ask({"seconds": 0.0})
        with tempfile.TemporaryDirectory(prefix="kforge-instruments-") as folder:
            home = Path(folder)
            trace = xctrace.record(context.process_id, home, call)
            if _INTERVALS not in schemas(xctrace.contents(trace, home)):
                raise NothingSeen(f"the trace holds no table {_INTERVALS}: this Instruments writes another one")
            seen = activities(rows(xctrace.table(trace, home, _INTERVALS)), context.process_id)
            images, trouble = _pictures(trace, home)
        return profile_of(seen, calls, images, trouble)


def _pictures(trace: Path, home: Path) -> tuple[tuple[Image, ...], str]:
    """Pictures of the trace's window, or why there are none."""
    try:
        return driving.pictures(trace, home), ""
    except driving.NotDriven as error:
        return (), f"no pictures: {error}"


@dataclass(frozen=True)
class RecordedActivity:
    """Something that ran on the GPU; times in nanoseconds."""

    name: str
    channel: str
    """Compute, Vertex, Fragment."""
    start: float
    length: float
    latency: float
    """The time from the processor's submission to the GPU's start."""


def activities(table: Iterable[Row], process_id: int) -> list[RecordedActivity]:
    """What the process ran, in order; rows of other processes, of no length and that make no sense are left out."""
    seen = []
    for row in table:
        start, length = _number(row, "start"), _number(row, "duration")
        if start is None or length is None or length <= 0 or not _is_of(row, process_id):
            continue
        label = row["event-label"].text if "event-label" in row else ""
        channel = row["channel-name"].text if "channel-name" in row else "GPU"
        latency = max(0.0, _number(row, "start-latency") or 0.0)
        seen.append(RecordedActivity(_word(label) or "unnamed", _word(channel), start, length, latency))
    return sorted(seen, key=lambda item: item.start)


def _number(row: Row, column: str) -> float | None:
    value = row[column].number if column in row else None
    return value if value is None or value >= 0 else None


def _is_of(row: Row, process_id: int) -> bool:
    """Whether the process did what a row says; a row that names none belongs to the one that was recorded."""
    if "process" not in row:
        return True
    pid = row["process"].part("pid") or row["process"].text.rpartition("(")[2].rstrip(")")
    return pid.strip() == str(process_id)


def profile_of(seen: list[RecordedActivity], calls: int, images: tuple[Image, ...] = (), trouble: str = "") -> Profile:
    """The profile of what ran on the GPU during so many calls; NothingSeen if nothing did."""
    if not seen or calls < 1:
        raise NothingSeen("Instruments saw nothing of this process on the GPU")
    return Profile("instruments", metrics(seen, calls), text(seen, calls, len(images), trouble), images)


def metrics(seen: list[RecordedActivity], calls: int) -> dict[str, float]:
    busy, span = _busy_ns(seen), max(item.start + item.length for item in seen) - seen[0].start
    latencies = sorted(item.latency for item in seen)
    return {
        "calls": float(calls),
        "busy_ns": busy / calls,
        "busy_share": busy / span,
        "launches": len(seen) / calls,
        "latency_ns": latencies[len(latencies) // 2],
    }


def text(seen: list[RecordedActivity], calls: int, images: int = 0, trouble: str = "") -> str:
    """The activities as a person would read them."""
    facts = metrics(seen, calls)
    lines = [
        f"a call keeps the GPU busy for {time(facts['busy_ns'])} in {facts['launches']:.3g} pieces; between the first "
        f"and the last of {calls} calls it is busy {percent(facts['busy_share'])} of the time",
        f"from submission to the GPU's start: {time(facts['latency_ns'])} (median)",
        f"{'share':>6} {'each':>8} {'times':>6}  what, on which channel",
    ]
    groups: dict[tuple[str, str], list[float]] = {}
    for item in seen:
        groups.setdefault((item.name, item.channel), []).append(item.length)
    total = sum(item.length for item in seen)
    for (name, channel), lengths in sorted(groups.items(), key=lambda group: (-sum(group[1]), group[0]))[:_ROWS]:
        each = time(sum(lengths) / len(lengths))
        lines.append(f"{percent(sum(lengths) / total):>6} {each:>8} {len(lengths) / calls:>6.3g}  {name} ({channel})")
    if trouble:
        lines.append(trouble)
    if images:
        lines.append("pictures: Instruments' window with the whole recording, then zoomed in")
    return "\n".join(lines)


def _busy_ns(seen: list[RecordedActivity]) -> float:
    """Time in which something ran, counted once however much ran at once."""
    total, reached = 0.0, 0.0
    for item in seen:
        total += max(0.0, item.start + item.length - max(item.start, reached))
        reached = max(reached, item.start + item.length)
    return total


def _word(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text.strip()[:_LONGEST_NAME])


PLUGIN = Instruments()
