"""Nsight Systems: kernels, API calls and copies of one call, from the tables that `nsys stats` makes."""

from __future__ import annotations

import csv
import math
import shlex
from dataclasses import dataclass

from kforge.profilers import _cuda_tools as tools
from kforge.profilers._facts import SHARE
from kforge.profilers._format import percent, time
from kforge.profilers._kernel_names import is_library, short_name
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Artefact, Profile

_REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum")
_KERNELS, _CALLS, _COPIES = _REPORTS
_TRACE = "nsys.nsys-rep"
_SECONDS = 120.0
_MOST_RAW = 3 << 20
_MOST_ROWS, _NAMED, _SHOWN = 500, 6, 12

_SCRIPT = """{nsys} profile --trace=cuda --sample=none --cpuctxsw=none --capture-range=cudaProfilerApi \
--capture-range-end=stop --force-overwrite=true --output={{home}}/nsys "$@" || exit $?
{nsys} stats --force-export=true --format csv --output {{home}}/stats {reports} {{home}}/{trace}"""
"""Both steps in the sandbox: what the program left in the trace is not read outside it."""


class Nsys(Profiler):
    name = "nsys"
    what = "kernels, CUDA API calls and copies over time"
    alone = True

    def unavailable_reason(self) -> str:
        if not tools.find("nsys"):
            return "nsys is not installed (NVIDIA Nsight Systems)"
        return tools.no_gpu_because()

    def collect(self, context: ProfilingContext) -> Profile:
        tools.require_cuda(self.name, context)
        seen = context.standalone(self.command(), files=("stats_*", _TRACE), seconds=_SECONDS)
        tables = {report: seen.files.get(f"stats_{report}.csv", b"").decode(errors="replace") for report in _REPORTS}
        if not any(tables.values()):
            raise NothingSeen(f"nsys gave no table (status {seen.status}): {tools.last_line(seen.errors)}")
        timing = context.verdict.timing
        timed = min(timing.candidate_ns) if timing is not None and timing.candidate_ns else None
        return profile_of(tables, timed, seen.files.get(_TRACE, b""))

    def command(self) -> tuple[str, ...]:
        reports = " ".join(f"--report {report}" for report in _REPORTS)
        script = _SCRIPT.format(nsys=shlex.quote(tools.find("nsys") or "nsys"), reports=reports, trace=_TRACE)
        return ("sh", "-c", script, "nsys")


@dataclass(frozen=True)
class NsysRow:
    """One line of a table."""

    name: str
    times: float
    total_ns: float


def read(table: str) -> list[NsysRow]:
    """The lines of one of the tables, the costliest first; none where there is no table."""
    lines = table.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("Time (%)")), None)
    if start is None:
        return []
    rows = []
    for row in list(csv.DictReader(lines[start:]))[:_MOST_ROWS]:
        name = row.get("Name") or row.get("Operation") or ""
        count = row.get("Instances") or row.get("Num Calls") or row.get("Count") or row.get("Operations")
        times, total = _number(count), _number(row.get("Total Time (ns)"))
        if name and times and total is not None:
            rows.append(NsysRow(name, times, total))
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def profile_of(tables: dict[str, str], timed_ns: float | None = None, trace: bytes = b"") -> Profile:
    """The profile of the tables, by report; NothingSeen where nothing ran on the device."""
    kernels, calls, copies = (read(tables.get(report, "")) for report in _REPORTS)
    total = sum(row.total_ns for row in (*kernels, *copies))
    if total <= 0:
        raise NothingSeen("nothing ran on the GPU in the call that was looked at")
    raw = [Artefact(f"{name}.csv", "text/csv", table.encode()) for name, table in tables.items() if table]
    if 0 < len(trace) <= _MOST_RAW:
        raw.append(Artefact(_TRACE, "application/octet-stream", trace))
    return Profile("nsys", metrics(kernels, calls, copies, timed_ns), text(kernels, calls, copies), raw=tuple(raw))


def metrics(
    kernels: list[NsysRow], calls: list[NsysRow], copies: list[NsysRow], timed_ns: float | None
) -> dict[str, float]:
    total = sum(row.total_ns for row in (*kernels, *copies))
    numbers = {
        "busy_ns": total,
        "launches": sum(row.times for row in kernels),
        "copies": sum(row.times for row in copies),
        "launching_ns": sum(row.total_ns for row in calls if "launch" in row.name.lower()),
        "library_share": sum(row.total_ns for row in kernels if is_library(row.name)) / total,
        "copy_share": sum(row.total_ns for row in copies) / total,
    }
    if timed_ns:
        numbers["idle_share"] = max(0.0, 1 - total / timed_ns)
    for row in kernels[:_NAMED]:
        key = SHARE + short_name(row.name)
        numbers[key] = numbers.get(key, 0.0) + row.total_ns / total
    return numbers


def text(kernels: list[NsysRow], calls: list[NsysRow], copies: list[NsysRow]) -> str:
    """The tables as a person would read them."""
    total = sum(row.total_ns for row in (*kernels, *copies))
    lines = [f"{time(total)} on the device in one call", f"{'share':>6} {'each':>8} {'times':>6}  kernel or copy"]
    for row in sorted((*kernels, *copies), key=lambda row: (-row.total_ns, row.name))[:_SHOWN]:
        name = short_name(row.name) if row in kernels else row.name
        lines.append(
            f"{percent(row.total_ns / total):>6} {time(row.total_ns / row.times):>8} {row.times:>6.0f}  {name}"
        )
    if calls:
        listed = ", ".join(f"{row.name} {row.times:.0f} x {time(row.total_ns / row.times)}" for row in calls[:5])
        lines.append(f"the processor's time in CUDA's API: {listed}")
    return "\n".join(lines)


PLUGIN = Nsys()
