"""OpenCL's event profiling: what a call puts into its queues, how long that waits there, and how long it runs."""

from __future__ import annotations

import importlib.util
from typing import Any

from kforge.profilers._facts import SHARE
from kforge.profilers._format import percent, time
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Profile

_CALLS, _ROWS = 9, 12


class OpenClEvents(Profiler):
    name = "opencl_events"
    what = "OpenCL commands with their times, waiting, transfers"
    probe_file = "_commands_probe.py"

    def unavailable_reason(self) -> str:
        return "" if importlib.util.find_spec("pyopencl") else "pyopencl is not installed (pip install pyopencl)"

    def collect(self, context: ProfilingContext) -> Profile:
        return profile_of(context.ask({"calls": _CALLS}))


def profile_of(reply: dict[str, Any]) -> Profile:
    """The profile of the call of median time; ValueError, KeyError or TypeError if the answer makes no sense."""
    wall, commands = sorted(reply["calls"])[len(reply["calls"]) // 2]
    if not commands:
        raise NothingSeen("no command went through pyopencl in the calls that were looked at")
    rows: dict[str, list[float]] = {}
    busy = last = 0
    for name, queued, submitted, began, ended in sorted(commands, key=lambda item: item[3]):
        if not 0 <= queued <= submitted <= began <= ended:
            raise ValueError("an event's times are out of order")
        row = (1, submitted - queued, began - submitted, ended - began)
        shown = "".join(c if c.isalnum() or c in " _" else "?" for c in name)
        rows[shown] = [have + more for have, more in zip(rows.get(shown, [0] * 4), row, strict=True)]
        busy, last = busy + max(0, ended - max(began, last)), max(ended, last)
    gaps = last - min(item[1] for item in commands) - busy
    total = sum(row[3] for row in rows.values()) or 1
    launches, own = (sum(row[part] for name, row in rows.items() if name.startswith("kernel ")) for part in (0, 3))
    metrics = {"wall_ns": float(wall), "busy_ns": float(busy), "gap_ns": float(gaps), "commands": float(len(commands))}
    metrics |= {"launches": launches, "idle_share": max(0, 1 - busy / max(wall, 1)), "transfer_share": 1 - own / total}
    lines = [
        f"a call takes {time(wall)} with profiling on; its {len(commands)} commands run for {time(busy)}, queues wait "
        f"for {time(gaps)}, and {time(max(0, wall - busy - gaps))} is Python: making buffers, setting arguments",
        f"{'share':>6} {'runs':>8} {'times':>6} {'to submit':>10} {'to start':>9}  command",
    ]
    for name, (times, submit, start, runs) in sorted(rows.items(), key=lambda item: -item[1][3])[:_ROWS]:
        metrics[SHARE + name] = share = runs / total
        lines.append(f"{percent(share):>6} {time(runs):>8} {times:>6.0f} {time(submit):>10} {time(start):>9}  {name}")
    return Profile("opencl_events", metrics, "\n".join(lines))


PLUGIN = OpenClEvents()
