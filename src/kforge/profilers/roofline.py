"""Where a program stands against the machine: counted work over measured time, beside measured ceilings.

The work is counted on the reference in a trusted runner: arithmetic exactly for matrix products and convolutions, as
one operation per element for everything else; traffic as every input, used parameter and output once. A program
that does less than that is not counted as doing less.

On a GPU, matrix products are held against the rate of the arithmetic that the problem and the settings allow, the rest
of the operations against ordinary float32; caches are cold before each timed call, so the bytes of one call decide
which bandwidth applies.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, replace
from typing import Any

from kforge.profilers import _ceilings
from kforge.profilers._facts import BOUND, FAR
from kforge.profilers._format import percent, size, time
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Profile

_EXCEEDED = 1.02
"""A program that beats a ceiling by more shows that the ceiling was measured on a busy machine."""
_MOST_RAISED = 1.5
"""A program that beats a ceiling by more does less than is counted, and shows nothing about the machine."""


MEASURED_DEVICES = ("cpu", "cuda")
"""Types of devices whose ceilings the probe can measure."""


class Roofline(Profiler):
    name = "roofline"
    what = "counted bytes and operations against this machine's ceilings"
    probe_file = "_work_probe.py"

    def unavailable_reason(self) -> str:
        return "" if importlib.util.find_spec("torch") else "torch is not installed"

    def collect(self, context: ProfilingContext) -> Profile:
        timing = context.verdict.timing
        if timing is None or not timing.candidate_ns:
            raise NothingSeen("the candidate was not timed")
        work = read_work(context.ask({"of": "reference"}, of="reference"))
        device = context.platform.device
        ceilings = _ceilings.CeilingsFile(
            context.platform.facts(), lambda: context.ask(machine_request(device), of="machine")
        )
        # The fastest block is the one that was disturbed least; what only the judge's clock saw of it counts too.
        time_ns = min(timing.candidate_ns) * (1 + timing.clock_excess)
        evidence = context.verdict.evidence
        precision = evidence.settings.precision if evidence is not None else ""
        place = find_place(work, ceilings.get(), device, context.working_bytes, precision).at(time_ns)
        place = correct_ceilings(place, min(timing.baseline_ns, default=math.inf), ceilings)
        return Profile(self.name, place.metrics(), place.text())


def machine_request(device: str) -> dict[str, Any]:
    """What the probe is asked, to measure the ceilings of a device of this type."""
    return {"of": "machine", "device": device, "sizes": _ceilings.GPU_SIZES if device == "cuda" else _ceilings.SIZES}


def allowed_arithmetic(dtype: str, precision: str) -> str:
    """What the problem's matrix products may be computed in: its own type, or the lowest that the settings allow."""
    if dtype in ("", _ceilings.FLOAT32) and precision in ("tf32", "float16", "bfloat16"):
        return precision
    return dtype or _ceilings.FLOAT32


def find_place(
    work: Work, ceilings: _ceilings.Ceilings, device: str, working_bytes: int, precision: str
) -> RooflinePoint:
    """The place of a program that is as fast as the ceilings of this type of device allow.

    `working_bytes` are those that timed calls go round in, `precision` is the lowest that is allowed.
    """
    if device == "cuda":
        arithmetic = allowed_arithmetic(work.dtype, precision)
        place = RooflinePoint(work, ceilings, 1.0, work.bytes_min, arithmetic=arithmetic)
    else:
        place = RooflinePoint(work, ceilings, 1.0, working_bytes)
    return place.at(place.floor_ns)


def correct_ceilings(place: RooflinePoint, baseline_ns: float, kept: _ceilings.CeilingsFile) -> RooflinePoint:
    """The place under ceilings that neither the program nor its baseline is above, where they were measured too low."""
    best = min(place.time_ns, baseline_ns)
    if not place.at(best).beats(_EXCEEDED):
        return place
    place = replace(place, ceilings=kept.raise_ceilings())
    seen = place.at(best)
    if not seen.beats(_EXCEEDED):
        return place
    if seen.beats(_MOST_RAISED):
        return replace(place, note="faster than the counted work allows: it does less than the reference does")
    work = place.work
    matrix = work.exact if place.ceilings.rates else work.flops
    raised = place.ceilings.with_seen_rates(
        place.working_bytes, work.bytes_min * 1e9 / best, matrix * 1e9 / best, place.arithmetic
    )
    return replace(place, ceilings=kept.keep(raised), note="a ceiling was raised to what was seen here")


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
    """The work in a probe's answer; ValueError, KeyError or TypeError if it holds none."""
    exact, estimated, read, written = (
        int(reply[name]) for name in ("exact", "estimated", "read_bytes", "output_bytes")
    )
    if min(exact, estimated, read, written) < 0:
        raise ValueError("work cannot be negative")
    return Work(exact, estimated, read, written, str(reply["dtype"]).removeprefix("torch.")[:20])


@dataclass(frozen=True)
class RooflinePoint:
    """A program's place under the roof."""

    work: Work
    ceilings: _ceilings.Ceilings
    time_ns: float
    working_bytes: int
    note: str = ""
    """A remark about the ceilings."""
    arithmetic: str = _ceilings.FLOAT32
    """The arithmetic that its matrix products may be computed in."""

    def at(self, time_ns: float) -> RooflinePoint:
        """The place of a program that took this long."""
        return replace(self, time_ns=time_ns)

    def beats(self, factor: float) -> bool:
        """Whether the program is faster than the ceilings allow, by more than this factor."""
        return max(self.memory_ns, self.compute_ns) > factor * self.time_ns

    @property
    def memory_ns(self) -> float:
        """The least time for moving the data."""
        return self.work.bytes_min * 1e9 / self.ceilings.bytes_per_second(self.working_bytes)

    @property
    def compute_ns(self) -> float:
        """The least time for the arithmetic."""
        matrix = self.work.exact * 1e9 / self.ceilings.rate(self.arithmetic)
        return matrix + self.work.estimated * 1e9 / self.ceilings.flops

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

    @property
    def limit_text(self) -> str:
        """How the least time for a call was found, in one line."""
        fixed = self.ceilings.overhead_ns
        if self.memory_ns >= self.compute_ns:
            rate = self.ceilings.bytes_per_second(self.working_bytes) / 1e9
            parts = [f"traffic: {size(self.work.bytes_min)} at {rate:.3g} GB/s{self._in_cache}"]
        else:
            parts = [f"arithmetic: {self.work.flops:.3g} operations at {self.ceiling_gflops:.3g} GFLOP/s"]
            parts[0] += f" in {self.arithmetic}" if self.work.exact else ""
        if fixed >= 0.01 * self.floor_ns:
            parts.append(f"{time(fixed)} that any call takes")
        return f"{' and '.join(parts)}, measured here"

    @property
    def _in_cache(self) -> str:
        return " in cache" if self.ceilings.bytes_per_second(self.working_bytes) > 1.3 * self.ceilings.memory else ""

    def metrics(self) -> dict[str, float]:
        numbers: dict[str, float] = {
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
            "ceiling_gflops": self.ceiling_gflops,
            "bandwidth_share": min(1.0, self.memory_ns / self.time_ns),
            "compute_share": min(1.0, self.compute_ns / self.time_ns),
            "roofline_share": min(1.0, max(self.memory_ns, self.compute_ns) / self.time_ns),
            "overhead_ns": self.ceilings.overhead_ns,
            "floor_ns": self.floor_ns,
            "headroom": max(1.0, self.time_ns / self.floor_ns),
            BOUND + self.bound: 1.0,
        }
        if self.ceilings.rates:
            numbers |= self._gpu_metrics()
        return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}

    @property
    def ceiling_gflops(self) -> float:
        """Operations a nanosecond that this mix of work allows."""
        return self.work.flops / self.compute_ns if self.compute_ns > 0 else self.ceilings.flops / 1e9

    @property
    def tensor_allowed(self) -> bool:
        """Whether its matrix products may use tensor cores, and would gain by it."""
        return self.arithmetic != _ceilings.FLOAT32 and self.ceilings.rate(self.arithmetic) > 1.5 * self.ceilings.flops

    def _gpu_metrics(self) -> dict[str, float]:
        return {
            "matrix_share": self.work.exact / max(self.work.flops, 1),
            "tensor_allowed": float(self.tensor_allowed),
            "launch_ns": self.ceilings.launch_ns,
            f"arithmetic/{self.arithmetic}": 1.0,
        }

    def text(self) -> str:
        seen = self.metrics()
        share = percent(seen["roofline_share"])
        far = self.bound != "overhead" and seen["roofline_share"] < FAR
        lines = [
            f"{self.bound} sets the least time, and the program is far from it: {share} of what this machine allows"
            if far
            else f"{self.bound} bound: {share} of what this machine allows",
            f"{time(self.time_ns)} a call in the fastest block; least possible {time(self.floor_ns)} "
            f"(memory {time(self.memory_ns)}, arithmetic {time(self.compute_ns)}, "
            f"fixed cost of a call {time(self.ceilings.overhead_ns)})",
            f"memory {seen['achieved_gbs']:.3g} of {seen['ceiling_gbs']:.3g} GB/s{self._in_cache}, "
            f"for at least {self.work.bytes_min} bytes a call",
            f"arithmetic {seen['achieved_gflops']:.3g} of {seen['ceiling_gflops']:.3g} GFLOP/s, "
            f"{self.work.flops} operations a call, {seen['intensity']:.3g} a byte",
        ]
        estimated = percent(self.work.estimated / max(self.work.flops, 1))
        if estimated != percent(0):
            lines.append(f"{estimated} of the operations are an estimate: one per element, whatever the function")
        if self.work.exact and self.ceilings.rates:
            lines.append(self._about_arithmetic())
        elif self.work.dtype not in ("", "float32") and self.work.exact:
            lines.append(f"the arithmetic ceiling is float32's; this problem is {self.work.dtype}")
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)

    def _about_arithmetic(self) -> str:
        """Which ceiling its matrix products are held against, and what others there are."""
        known = dict(self.ceilings.rates)
        others = ", ".join(f"{name} {rate / 1e12:.3g}" for name, rate in sorted(known.items()))
        if self.arithmetic not in known:
            chosen = f"float32's: {self.arithmetic} was not measured"
        elif self.arithmetic == _ceilings.FLOAT32:
            chosen = "float32's without tensor cores: this problem allows no lower precision"
        else:
            chosen = f"{self.arithmetic}'s on tensor cores" if self.tensor_allowed else f"{self.arithmetic}'s"
        return f"matrix products are held against {chosen}; measured here, in TFLOP/s: {others}"


PLUGIN = Roofline()
