"""Nsight Compute: hardware counters of CUDA kernels, one call of the program behind the tool."""

from __future__ import annotations

import re

from kforge.profilers import _cuda_tools as tools
from kforge.profilers import _ncu_table
from kforge.profilers._facts import SHARE
from kforge.profilers._format import percent, size, time
from kforge.profilers._gpu_facts import CUT, MOST_KERNELS, WHOLE, metric_name
from kforge.profilers._ncu_table import STALL, NcuKernel
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext, StandaloneRun
from kforge.types import Artefact, Profile

MOST_LAUNCHES = 5
"""How many launches of a call are looked at: each is run again and again, and takes the device a second or two."""
_ENOUGH, _MOST_NAMES = 0.8, 4
"""The kernels to look at, where a call has more launches than that: the costliest, which make up so much of it."""
_COPIES = ("Memcpy", "Memset")
_NO_KERNEL = "no kernel ran in the call that was looked at"
_PLAIN_NAME = re.compile(r"\w+")
_FILE = "ncu.csv"
_SECONDS = 120.0
_MOST_RAW = 2 << 20


class Ncu(Profiler):
    name = "ncu"
    what = "hardware counters of CUDA kernels"
    alone = True

    def unavailable_reason(self) -> str:
        if not tools.find("ncu"):
            return "ncu is not installed (part of NVIDIA's CUDA toolkit; Nsight Compute alone will do)"
        return tools.no_gpu_because() or tools.counters_denied_reason()

    def collect(self, context: ProfilingContext) -> Profile:
        tools.require_cuda(self.name, context)
        names = costliest(context.earlier.get("torch_trace"))
        try:
            return self._look(context, names)
        except NothingSeen as nothing:
            if not names or _NO_KERNEL not in str(nothing):
                raise
            return self._look(context, ())

    def _look(self, context: ProfilingContext, names: tuple[str, ...]) -> Profile:
        seen = context.standalone(self.command(names), files=(_FILE,), seconds=_SECONDS)
        table = seen.files.get(_FILE, b"").decode(errors="replace") or seen.output
        return profile_of(table, seen, names)

    def command(self, names: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Only what runs between cudaProfilerStart and cudaProfilerStop; clocks are left as they are.

        Counters by name: a launch is run again until all of them are read, and whole sections hold three times as many.
        """
        chosen = ("--kernel-name", f"regex:^({'|'.join(names)})") if names else ()
        return (
            *(tools.find("ncu") or "ncu", "--profile-from-start", "off", "--clock-control", "none"),
            *(*chosen, "--launch-count", str(MOST_LAUNCHES), "--metrics", ",".join(_ncu_table.COUNTERS)),
            *("--csv", "--page", "raw", "--print-units", "base", "--log-file", f"{{home}}/{_FILE}"),
        )


def costliest(trace: Profile | None) -> tuple[str, ...]:
    """The kernels to look at, by a trace of the call; none where all its launches can be, or no trace is there."""
    if trace is None or trace.metrics.get("launches", 0.0) <= MOST_LAUNCHES:
        return ()
    names: list[str] = []
    share = 0.0
    for metric, part in trace.metrics.items():
        # The tool calls a function by its own name, without namespaces.
        name = metric.removeprefix(SHARE).rpartition("::")[2]
        if not metric.startswith(SHARE) or name.startswith(_COPIES) or share >= _ENOUGH:
            continue
        if not _PLAIN_NAME.fullmatch(name):
            # One that cannot be asked for: what is left would not be the costliest.
            return ()
        names.append(name)
        share += part
    return tuple(dict.fromkeys(names))[:_MOST_NAMES]


def profile_of(table: str, seen: StandaloneRun | None = None, names: tuple[str, ...] = ()) -> Profile:
    """The profile of the tool's table; NothingSeen if there is none, with what was said instead.

    `names`: what its kernels were chosen by, where it was not all of them.
    """
    try:
        kernels = [kernel for kernel in _ncu_table.kernels(table) if kernel.time_ns > 0]
    except ValueError:
        kernels = []
    if not kernels:
        raise NothingSeen(_why_none(table, seen))
    raw = Artefact(_FILE, "text/csv", table.encode()[:_MOST_RAW])
    return Profile("ncu", metrics(kernels, names), text(kernels, names), raw=(raw,))


def _why_none(table: str, seen: StandaloneRun | None) -> str:
    output = table + (seen.output + seen.errors if seen is not None else "")
    if tools.DENIED in output:
        return tools.DENIED_WORDS
    if "no kernels were profiled" in output.lower():
        return _NO_KERNEL
    status = f" (status {seen.status})" if seen is not None else ""
    errors = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    last = seen.errors if seen is not None and seen.errors.strip() else output
    return f"ncu gave no table{status}: {errors[0][:300] if errors else tools.last_line(last)}"


def metrics(kernels: list[NcuKernel], names: tuple[str, ...] = ()) -> dict[str, float]:
    """Numbers of the call, then of its costliest kernels: `1/occupancy` is the first's in the order of `share/`."""
    total = sum(kernel.time_ns for kernel in kernels)
    launches = sum(kernel.launches for kernel in kernels)
    made = {
        "time_ns": total,
        "launches": float(launches),
        "kernels": float(len(kernels)),
        "dram_bytes": sum(kernel.numbers.get("dram_bytes", 0.0) for kernel in kernels),
    }
    if launches >= MOST_LAUNCHES or names:
        made[CUT] = 1.0
    top = kernels[:MOST_KERNELS]
    made |= {SHARE + kernel.name: kernel.time_ns / total for kernel in top}
    for rank, kernel in enumerate(top, 1):
        made[metric_name(rank, "launches")] = float(kernel.launches)
        made |= {metric_name(rank, name): value for name, value in kernel.numbers.items()}
        made[metric_name(rank, WHOLE)] = 1.0
    return made


def text(kernels: list[NcuKernel], names: tuple[str, ...] = ()) -> str:
    """The counters as a person would read them."""
    total = sum(kernel.time_ns for kernel in kernels)
    launches = sum(kernel.launches for kernel in kernels)
    lines = [f"{launches} {'launch' if launches == 1 else 'launches'} of one call, {time(total)} on the device"]
    if names:
        lines.append(f"the first launches of a call's costliest kernels, {', '.join(names)}, and no others")
    elif launches >= MOST_LAUNCHES:
        lines.append(f"no more than the first {launches} launches of a call are looked at")
    for kernel in kernels[:8]:
        share = percent(kernel.time_ns / total)
        lines.append(f"{kernel.name}: {share} of that, {kernel.launches} x {time(kernel.time_ns / kernel.launches)}")
        lines += [f"  {line}" for line in _kernel_lines(kernel.numbers)]
    return "\n".join(lines)


def _kernel_lines(row: dict[str, float]) -> list[str]:
    def pct(name: str) -> str:
        return percent(row[name]) if name in row else "?"

    def num(name: str) -> str:
        return f"{row[name]:.4g}" if name in row else "?"

    waits = [f"{name.removeprefix(STALL)} {percent(value)}" for name, value in row.items() if name.startswith(STALL)]
    return [
        f"units: SM {pct('sm_share')}, L1 and shared memory {pct('l1_share')}, L2 {pct('l2_share')}, "
        f"DRAM {pct('dram_share')} of their peak; {size(row.get('dram_bytes', 0.0))} through DRAM",
        f"pipes: FMA {pct('fma_share')}, ALU {pct('alu_share')}, special functions {pct('xu_share')}, "
        f"FP64 {pct('fp64_share')}, load/store {pct('lsu_share')}, tensor cores {pct('tensor_share')}; "
        f"an instruction is issued in {pct('issue_share')} of the cycles",
        f"occupancy {pct('occupancy')} of at most {pct('occupancy_limit')}: {num('registers')} registers a thread, "
        f"{size(row.get('shared_bytes', 0.0))} shared memory and {num('block_size')} threads a block, "
        f"{num('grid_size')} blocks, {num('waves')} waves",
        f"global loads {num('load_sectors')} sectors a request, {pct('load_use')} of their bytes used; "
        f"stores {num('store_sectors')}, {pct('store_use')}; L1 hits {pct('l1_hits')}, L2 hits {pct('l2_hits')}",
        f"bank conflicts {pct('conflict_share')} of shared-memory wavefronts; spilled {pct('local_share')} of L1 "
        f"sectors; atomics {pct('atomic_share')} of global requests",
        "warps wait for: " + (", ".join(waits) or "nothing in particular"),
    ]


PLUGIN = Ncu()
