"""What this machine can do at most, measured once and kept."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kforge import jsonable
from kforge.cache_folder import cache_folder
from kforge.errors import WireError
from kforge.whole_file import write_whole

_VERSION = 2
SIZES = tuple(1 << shift for shift in (20, 22, 24, 26, 28, 29))
"""Bytes of the arrays whose bandwidth is measured: from what fits in a core's cache to what fits in none."""
GPU_SIZES = tuple(1 << shift for shift in (22, 24, 26, 28, 30, 32))
"""Bytes of such arrays on a GPU: from well inside its second-level cache to far beyond it."""
FLOAT32 = "float32"


@dataclass(frozen=True)
class Ceilings:
    """Rates that no program here exceeds by much."""

    bandwidth: tuple[tuple[int, float], ...]
    """(Bytes gone round in, bytes a second), smallest first."""
    flops: float
    """Float32 operations a second."""
    overhead_ns: float
    """The least a call takes: through nn.Module and ctypes; on a GPU, the smallest kernel."""
    rates: tuple[tuple[str, float], ...] = ()
    """On a GPU: (arithmetic, operations a second of a matrix product in it); tf32 is float32 on tensor cores."""
    launch_ns: float = 0.0
    """On a GPU: what each further launch in a call costs the device."""

    def rate(self, arithmetic: str) -> float:
        """Operations a second of matrix products in this arithmetic; float32's where it was not measured."""
        return dict(self.rates).get(arithmetic, self.flops)

    def bytes_per_second(self, working_bytes: int) -> float:
        """The bandwidth for a program that goes round in this much memory."""
        return next((rate for size, rate in self.bandwidth if size >= working_bytes), self.bandwidth[-1][1])

    def with_seen_rates(
        self, working_bytes: int, bytes_per_second: float, flops: float, arithmetic: str = FLOAT32
    ) -> Ceilings:
        """The ceilings with the rates seen in this much memory and this arithmetic, where those are higher."""
        place = next((size for size, _ in self.bandwidth if size >= working_bytes), self.bandwidth[-1][0])
        bandwidth = tuple(
            (size, max(rate, bytes_per_second) if size == place else rate) for size, rate in self.bandwidth
        )
        rates = tuple((name, max(rate, flops) if name == arithmetic else rate) for name, rate in self.rates)
        least = max(self.flops, flops) if arithmetic == FLOAT32 or not rates else self.flops
        return replace(self, bandwidth=bandwidth, flops=least, rates=rates)

    @property
    def memory(self) -> float:
        """The bandwidth of main memory."""
        return self.bandwidth[-1][1]


class CeilingsFile:
    """The ceilings of one machine, in a file. A folder that cannot be written to is no fault."""

    def __init__(self, facts: dict[str, str], measure: Callable[[], dict[str, Any]]) -> None:
        self._path = cache_folder() / f"ceilings-{_key(facts)}.json"
        self._measure = measure

    def get(self) -> Ceilings:
        """The ceilings, from an earlier measurement or measured now."""
        return self.known() or self.keep(read(self._measure()))

    def known(self) -> Ceilings | None:
        """The ceilings of an earlier measurement; None before there was one."""
        try:
            return jsonable.decode(Ceilings, json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, WireError):
            return None

    def raise_ceilings(self) -> Ceilings:
        """Measure the ceilings again and keep the higher of each: what was kept may come from a busy moment."""
        return self.keep(merge_highest(self.get(), read(self._measure())))

    def keep(self, ceilings: Ceilings) -> Ceilings:
        """Keep these ceilings from now on, and return them."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(jsonable.encode(ceilings)).encode())
        return ceilings


def merge_highest(one: Ceilings, two: Ceilings) -> Ceilings:
    """The better of two measurements, number by number."""
    rates = dict(one.bandwidth)
    bandwidth = tuple((size, max(rate, rates.get(size, 0.0))) for size, rate in two.bandwidth)
    before = dict(one.rates)
    return Ceilings(
        bandwidth,
        max(one.flops, two.flops),
        min(one.overhead_ns, two.overhead_ns),
        tuple((name, max(rate, before.get(name, 0.0))) for name, rate in two.rates),
        min(one.launch_ns, two.launch_ns),
    )


def read(reply: dict[str, Any]) -> Ceilings:
    """The ceilings of a probe's answer; ValueError if it holds none."""
    bandwidth = tuple(sorted((int(size), float(rate)) for size, rate in reply["bandwidth"]))
    rates = tuple(sorted((str(name)[:20], float(rate)) for name, rate in reply.get("rates", [])))
    launch = float(reply.get("launch_ns", 0.0))
    ceilings = Ceilings(bandwidth, float(reply["flops"]), float(reply["overhead_ns"]), rates, launch)
    numbers = [ceilings.flops, ceilings.overhead_ns, *(rate for _, rate in (*bandwidth, *rates)), 1.0 + launch]
    if not bandwidth or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise ValueError("a ceiling that is none")
    return ceilings


@functools.cache
def _torch_version() -> str:
    return importlib.metadata.version("torch")


def _key(facts: dict[str, str]) -> str:
    parts = [_VERSION, sorted(facts.items()), _torch_version(), os.environ.get("OMP_NUM_THREADS")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
