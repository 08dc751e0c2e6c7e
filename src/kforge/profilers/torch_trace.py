"""torch.profiler with CUPTI: what a call runs on the GPU, the gaps between, and whose kernels they are."""

from __future__ import annotations

import base64
import importlib.util
from typing import Any

from kforge.profilers import _cuda_tools as tools
from kforge.profilers import _trace_events
from kforge.profilers._facts import SHARE
from kforge.profilers._format import percent, time
from kforge.profilers._trace_events import TraceCall
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Artefact, Profile

_CALLS = 5
_ROWS, _NAMED = 12, 6
_MOST_RAW = 2 << 20


class TorchTrace(Profiler):
    name = "torch_trace"
    what = "kernels on the GPU with their times, launch gaps, copies"
    probe_file = "_trace_probe.py"

    def unavailable_reason(self) -> str:
        if not importlib.util.find_spec("torch"):
            return "torch is not installed"
        return tools.no_gpu_because()

    def collect(self, context: ProfilingContext) -> Profile:
        tools.require_cuda(self.name, context)
        timing = context.verdict.timing
        timed = min(timing.candidate_ns) if timing is not None and timing.candidate_ns else None
        return profile_of(context.ask({"calls": _CALLS}), timed)


def profile_of(reply: dict[str, Any], timed_ns: float | None = None) -> Profile:
    """The profile of the probe's answer; ValueError, KeyError or TypeError if it makes no sense."""
    if reply.get("absent"):
        raise NothingSeen(str(reply["absent"])[:300])
    data = base64.b64decode(str(reply["trace"]), validate=True)
    seen = [call for call in _trace_events.calls(_trace_events.unpack(data)) if call.activities]
    if not seen:
        raise NothingSeen("nothing ran on the GPU in the calls that were looked at")
    left_out = int(reply.get("left_out", 0))
    raw = (Artefact("trace.json.gz", "application/gzip", data),) if len(data) <= _MOST_RAW else ()
    return Profile("torch_trace", metrics(seen, timed_ns), text(seen, timed_ns, left_out), raw=raw)


def metrics(seen: list[TraceCall], timed_ns: float | None) -> dict[str, float]:
    """Numbers of the call in the middle by busy time, and shares over all calls."""
    middle = _middle(seen)
    total = sum(item.length for call in seen for item in call.activities)
    numbers = {
        "calls": float(len(seen)),
        "busy_ns": middle.busy_ns,
        "span_ns": middle.span_ns,
        "gap_share": 1 - middle.busy_ns / max(middle.span_ns, 1.0),
        "idle_share": idle_share(middle, timed_ns),
        "launches": float(len(middle.kernels)),
        "copies": float(len(middle.activities) - len(middle.kernels)),
        "launching_ns": middle.launching_ns,
        "library_share": sum(item.length for call in seen for item in call.kernels if item.library) / total,
        "copy_share": sum(item.length for call in seen for item in call.activities if item.copy) / total,
    }
    return numbers | {SHARE + name: spent / total for name, (_, spent, _) in list(_rows(seen).items())[:_NAMED]}


def idle_share(call: TraceCall, timed_ns: float | None) -> float:
    """The share of the time the judge measured, or of the trace's span, in which nothing ran on the device."""
    whole = timed_ns if timed_ns else call.span_ns
    return max(0.0, 1 - call.busy_ns / max(whole, 1.0))


def text(seen: list[TraceCall], timed_ns: float | None, left_out: int = 0) -> str:
    """The calls as a person would read them."""
    middle = _middle(seen)
    total = sum(item.length for call in seen for item in call.activities)
    idle = idle_share(middle, timed_ns)
    of = "the time that was measured" if timed_ns else "its span"
    lines = [
        f"a call launches {_count(len(middle.kernels), 'kernel')} and {_count(_copies(middle), 'copy')}; the device is "
        f"busy for {time(middle.busy_ns)} and idle for {percent(idle)} of {of}",
        f"gaps between kernels: {time(middle.span_ns - middle.busy_ns)} in all; launching takes the processor "
        f"{time(middle.launching_ns)}",
        f"{'share':>6} {'each':>8} {'times':>6}  kernel",
    ]
    for name, (times, spent, library) in list(_rows(seen).items())[:_ROWS]:
        whose = "library" if library else "own"
        each = time(spent / max(times, 1))
        lines.append(f"{percent(spent / total):>6} {each:>8} {times / len(seen):>6.3g}  {name} ({whose})")
    if left_out:
        lines.append(f"{left_out} events of the trace were left out")
    return "\n".join(lines)


def _rows(seen: list[TraceCall]) -> dict[str, tuple[int, float, bool]]:
    """Name -> times, time and whether a library's, over all calls, the costliest first."""
    rows: dict[str, tuple[int, float, bool]] = {}
    for item in (item for call in seen for item in call.activities):
        times, spent, library = rows.get(item.name, (0, 0.0, True))
        rows[item.name] = (times + 1, spent + item.length, library and (item.library or item.copy))
    return dict(sorted(rows.items(), key=lambda row: (-row[1][1], row[0])))


def _middle(seen: list[TraceCall]) -> TraceCall:
    return sorted(seen, key=lambda call: call.busy_ns)[len(seen) // 2]


def _copies(call: TraceCall) -> int:
    return len(call.activities) - len(call.kernels)


def _count(number: int, what: str) -> str:
    many = what[:-1] + "ies" if what.endswith("y") else what + "s"
    return f"{number} {what if number == 1 else many}"


PLUGIN = TorchTrace()
