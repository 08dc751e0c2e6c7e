"""Where a program stands against the machine: counted work over measured time, beside measured ceilings.

The work is counted on the reference in a trusted runner: arithmetic exactly for matrix products and convolutions, as
one operation per element for everything else; traffic as every input, used parameter and output once. A program
that does less than that is not counted as doing less.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, replace
from typing import Any

from kforge.profilers import _ceilings
from kforge.profilers.digest import BOUND
from kforge.profilers.face import Bench, NothingSeen, Profiler
from kforge.types import Profile

_EXCEEDED = 1.05
"""A program that beats a ceiling by more shows that it was measured on a busy machine."""


class Roofline(Profiler):
    name = "roofline"
    what = "counted bytes and operations against this machine's ceilings"
    probe_file = "_work_probe.py"

    def absent_because(self) -> str:
        return "" if importlib.util.find_spec("torch") else "torch is not installed"

    def collect(self, bench: Bench) -> Profile:
        timing = bench.verdict.timing
        if timing is None or not timing.candidate_ns:
            raise NothingSeen("the candidate was not timed")
        work = read_work(bench.ask({"of": "reference"}, of="reference"))
        request = {"of": "machine", "sizes": _ceilings.SIZES}
        ceilings = _ceilings.Kept(bench.platform.facts(), lambda: bench.ask(request, of="machine"))
        samples = sorted(timing.candidate_ns)
        place = Place(work, ceilings.get(), samples[len(samples) // 2], bench.working_bytes)
        if max(place.memory_ns, place.compute_ns) > _EXCEEDED * place.time_ns:
            place = replace(place, ceilings=ceilings.raise_them())
        return Profile(self.name, place.metrics(), place.text())


@dataclass(frozen=True)
class Work:
    """What one call has to do at least."""

    exact: int
    """Operations in matrix products and convolutions."""
    estimated: int
    """Operations elsewhere: one per element."""
    read_bytes: int
    output_bytes: int
    dtype: str = ""

    @property
    def flops(self) -> int:
        return self.exact + self.estimated

    @property
    def bytes_min(self) -> int:
        return max(1, self.read_bytes + self.output_bytes)


def read_work(reply: dict[str, Any]) -> Work:
    """From a probe's answer; ValueError, KeyError or TypeError if it is none."""
    exact, estimated, taken, given = (int(reply[name]) for name in ("exact", "estimated", "read_bytes", "output_bytes"))
    if min(exact, estimated, taken, given) < 0:
        raise ValueError("work cannot be negative")
    return Work(exact, estimated, taken, given, str(reply["dtype"]).removeprefix("torch.")[:20])


@dataclass(frozen=True)
class Place:
    """A program's place under the roof."""

    work: Work
    ceilings: _ceilings.Ceilings
    time_ns: float
    working_bytes: int

    @property
    def memory_ns(self) -> float:
        """The least time for moving the data."""
        return self.work.bytes_min * 1e9 / self.ceilings.bytes_per_second(self.working_bytes)

    @property
    def compute_ns(self) -> float:
        """The least time for the arithmetic."""
        return self.work.flops * 1e9 / self.ceilings.flops

    @property
    def floor_ns(self) -> float:
        """The least time for a call: the larger of the two, and the fixed cost."""
        return max(self.memory_ns, self.compute_ns) + self.ceilings.overhead_ns

    @property
    def bound(self) -> str:
        """memory, compute or overhead: what the time would be made of if nothing else were in the way."""
        kernel = max(self.memory_ns, self.compute_ns)
        if self.ceilings.overhead_ns >= kernel and self.time_ns <= 4 * self.floor_ns:
            return "overhead"
        return "memory" if self.memory_ns >= self.compute_ns else "compute"

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {
            "flops": self.work.flops,
            "flops_estimated": self.work.estimated,
            "bytes_min": self.work.bytes_min,
            "output_bytes": self.work.output_bytes,
            "intensity": self.work.flops / self.work.bytes_min,
            "time_ns": self.time_ns,
            "achieved_gbs": self.work.bytes_min / self.time_ns,
            "ceiling_gbs": self.ceilings.bytes_per_second(self.working_bytes) / 1e9,
            "memory_gbs": self.ceilings.memory / 1e9,
            "achieved_gflops": self.work.flops / self.time_ns,
            "ceiling_gflops": self.ceilings.flops / 1e9,
            "bandwidth_share": min(1.0, self.memory_ns / self.time_ns),
            "compute_share": min(1.0, self.compute_ns / self.time_ns),
            "roofline_share": min(1.0, max(self.memory_ns, self.compute_ns) / self.time_ns),
            "overhead_ns": self.ceilings.overhead_ns,
            "floor_ns": self.floor_ns,
            "headroom": max(1.0, self.time_ns / self.floor_ns),
            BOUND + self.bound: 1.0,
        }
        return {name: float(value) for name, value in found.items() if math.isfinite(value)}

    def text(self) -> str:
        seen = self.metrics()
        where = "in cache" if self.ceilings.bytes_per_second(self.working_bytes) > 1.3 * self.ceilings.memory else ""
        lines = [
            f"{self.bound} bound: {seen['roofline_share']:.0%} of what this machine allows",
            f"time {self.time_ns / 1e3:.1f} µs a call; least possible {self.floor_ns / 1e3:.1f} µs "
            f"(memory {self.memory_ns / 1e3:.1f}, arithmetic {self.compute_ns / 1e3:.1f}, "
            f"fixed cost of a call {self.ceilings.overhead_ns / 1e3:.1f})",
            f"memory {seen['achieved_gbs']:.3g} of {seen['ceiling_gbs']:.3g} GB/s{' ' + where if where else ''}, "
            f"for at least {self.work.bytes_min} bytes a call",
            f"arithmetic {seen['achieved_gflops']:.3g} of {seen['ceiling_gflops']:.3g} GFLOP/s, "
            f"{self.work.flops} operations a call, {seen['intensity']:.3g} a byte",
        ]
        if self.work.estimated:
            share = self.work.estimated / max(self.work.flops, 1)
            lines.append(f"{share:.0%} of the operations are an estimate: one per element, whatever the function")
        if self.work.dtype not in ("", "float32") and self.work.exact:
            lines.append(f"the arithmetic ceiling is float32's; this problem is {self.work.dtype}")
        return "\n".join(lines)


PLUGIN = Roofline()
