"""What this machine can do at most, measured once and kept."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kforge import jsonable
from kforge.cache_folder import cache_folder
from kforge.errors import WireError
from kforge.whole_file import write_whole

_VERSION = 2
SIZES = tuple(1 << shift for shift in (20, 22, 24, 26, 28, 29))
"""Bytes of the arrays whose bandwidth is measured: from what fits in a core's cache to what fits in none."""


@dataclass(frozen=True)
class Ceilings:
    """Rates that no program here exceeds by much."""

    bandwidth: tuple[tuple[int, float], ...]
    """(Bytes gone round in, bytes a second), smallest first."""
    flops: float
    """Float32 operations a second."""
    overhead_ns: float
    """The least a call through nn.Module and ctypes takes."""

    def bytes_per_second(self, working_bytes: int) -> float:
        """The bandwidth for a program that goes round in this much memory."""
        return next((rate for size, rate in self.bandwidth if size >= working_bytes), self.bandwidth[-1][1])

    def raised(self, working_bytes: int, bytes_per_second: float, flops: float) -> Ceilings:
        """With the rates that were seen in this much memory, where they are higher."""
        place = next((size for size, _ in self.bandwidth if size >= working_bytes), self.bandwidth[-1][0])
        bandwidth = tuple(
            (size, max(rate, bytes_per_second) if size == place else rate) for size, rate in self.bandwidth
        )
        return Ceilings(bandwidth, max(self.flops, flops), self.overhead_ns)

    @property
    def memory(self) -> float:
        """The bandwidth of main memory."""
        return self.bandwidth[-1][1]


class Kept:
    """The ceilings of one machine, in a file. A folder that cannot be written to is no fault."""

    def __init__(self, facts: dict[str, str], measure: Callable[[], dict[str, Any]]) -> None:
        self._path = cache_folder() / f"ceilings-{_key(facts)}.json"
        self._measure = measure

    def get(self) -> Ceilings:
        """From an earlier measurement, or made now."""
        try:
            return jsonable.decode(Ceilings, json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, WireError):
            return self.keep(read(self._measure()))

    def raise_them(self) -> Ceilings:
        """Measure again and keep the higher of each: what was kept may come from a busy moment."""
        return self.keep(highest(self.get(), read(self._measure())))

    def keep(self, found: Ceilings) -> Ceilings:
        """From now on, these."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(jsonable.encode(found)).encode())
        return found


def highest(one: Ceilings, two: Ceilings) -> Ceilings:
    """The better of two measurements, number by number."""
    rates = dict(one.bandwidth)
    bandwidth = tuple((size, max(rate, rates.get(size, 0.0))) for size, rate in two.bandwidth)
    return Ceilings(bandwidth, max(one.flops, two.flops), min(one.overhead_ns, two.overhead_ns))


def read(reply: dict[str, Any]) -> Ceilings:
    """From a probe's answer; ValueError if it is none."""
    bandwidth = tuple(sorted((int(size), float(rate)) for size, rate in reply["bandwidth"]))
    found = Ceilings(bandwidth, float(reply["flops"]), float(reply["overhead_ns"]))
    numbers = [found.flops, found.overhead_ns, *(rate for _, rate in bandwidth)]
    if not bandwidth or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise ValueError("a ceiling that is none")
    return found


def _key(facts: dict[str, str]) -> str:
    parts = [_VERSION, sorted(facts.items()), importlib.metadata.version("torch"), os.environ.get("OMP_NUM_THREADS")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
