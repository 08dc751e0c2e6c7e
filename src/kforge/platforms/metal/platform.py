"""Apple GPUs in Metal's language, compiled at run time by torch. Without a Mac, programs are verified in emulation."""

from __future__ import annotations

import functools
import importlib.util
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from kforge.platforms._emulated import Emulated
from kforge.platforms.base import Dialect, Platform, Stopwatch

MISSING = ("ConvTranspose3d", "MaxPool3d", "AvgPool3d")
"""Layers that torch has no MPS kernels for: a problem made of them has no reference on a Mac."""
_CACHE_BYTES = 96 << 20
_LAUNCH_NS = 100_000
_MOST_CALLS = 32
_clock = time.perf_counter_ns


class Metal(Platform):
    name = "metal"
    device_class = "gpu"
    device = "mps"
    profilers = ("instruments",)
    address_space_limited = False
    flushes_cache = True
    notes_launches = True
    dialect = Dialect(
        language="metal",
        marks=r"\bmetal_stdlib\b|\[\[\s*thread\w*_in_\w+|\bmps\.compile_shader\b|\bthreadgroup_barrier\b",
        suffixes=(".metal",),
    )
    terms = {
        "kernel": "kernel, `kernel void`, built by `torch.mps.compile_shader`",
        "grid": "dispatch, sized in threads: `library.kernel(..., threads=..., group_size=...)`",
        "block": "threadgroup, `[[threadgroup_position_in_grid]]`, `[[threads_per_threadgroup]]`",
        "thread": "thread, `[[thread_position_in_threadgroup]]`",
        "global index": "`[[thread_position_in_grid]]`",
        "warp": "SIMD-group, 32 threads",
        "warp exchange": "`simd_shuffle_down`, `simd_shuffle_xor`, `simd_broadcast`; `simd_sum`, `simd_max`",
        "shared memory": "threadgroup memory, `threadgroup`; 32 KB at most",
        "barrier": "`threadgroup_barrier(mem_flags::mem_threadgroup)`",
        "warp barrier": "`simdgroup_barrier(mem_flags::mem_threadgroup)`",
        "global memory": "device memory, `device float*`",
        "constant": "`constant` address space: `constant float&`",
        "wide access": "`float4`, through `device const float4*`",
        "atomic": "`atomic_fetch_add_explicit(&x, value, memory_order_relaxed)` on `atomic_int`, `atomic_float`",
        "matrix unit": "`simdgroup_matrix`, 8 x 8, `simdgroup_multiply_accumulate`",
        "functions": "`exp`, `rsqrt`, `max`, `precise::tanh`",
        "double": "none: sum in `float`, in pairs or with compensation",
    }

    def unavailable_reason(self) -> str:
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed (pip install torch)"
        import torch

        if not torch.backends.mps.is_available():
            return "this torch has no MPS, or this macOS is too old for it (macOS 14 and a torch wheel for arm64)"
        return ""

    @functools.cache  # noqa: B019  one instance lives as long as the process
    def facts(self, number: int = 0) -> dict[str, str]:
        return {
            "processor": _sysctl("machdep.cpu.brand_string") or "an Apple GPU",
            "cores": _gpu_cores() or "unknown",
            "memory": f"{self.memory_bytes() >> 30} GiB, shared with the processor",
            "macos": platform.mac_ver()[0],
        }

    def compilers(self) -> dict[str, str]:
        return {"metal": f"torch.mps.compile_shader, macOS {platform.mac_ver()[0]}"}

    def device_name(self, number: int) -> str:
        """The judge computes and compares on the processor: MPS has no float64, and memory is shared."""
        return "cpu"

    def enter_runner(self) -> None:
        import torch

        compile_shader = torch.mps.compile_shader
        torch.mps.compile_shader = lambda source: _NotingLibrary(compile_shader(source), self)

    def memory_bytes(self, number: int = 0) -> int:
        return int(_sysctl("hw.memsize") or 0)

    def synchronize(self) -> None:
        import torch

        torch.mps.synchronize()

    def stopwatch(self) -> Stopwatch:
        return BatchStopwatch(self.synchronize)

    def peak_bytes(self) -> int:
        import torch

        return int(torch.mps.current_allocated_memory())


class _NotingLibrary:
    """A library of kernels that notes which are called."""

    def __init__(self, library: Any, platform: Platform) -> None:
        self._library, self._platform = library, platform

    def __getattr__(self, name: str) -> Any:
        return self._platform.noting(getattr(self._library, name), lambda *_, **__: name)


class EmulatedMetal(Emulated):
    name = "metal"
    stand_in = "kforge.emulation.metal"

    def hardware(self) -> Platform:
        return Metal()

    def facts(self, number: int = 0) -> dict[str, str]:
        return {
            "processor": "an Apple GPU, emulated on this machine's processor",
            "cores": "unknown",
            "memory": "shared with the processor",
            "macos": "none: programs are verified in emulation and not timed",
        }


class BatchStopwatch(Stopwatch):
    """A dispatch costs about 0.1 ms, whatever it does: short calls are timed several in a row, caches cold before.

    The first call's output is the one that counts; the others repeat it.
    """

    def __init__(self, synchronize: Callable[[], None]) -> None:
        super().__init__(synchronize)
        self._scratch: Any = None
        self._calls = 1

    def time(self, call: Callable[[], Any]) -> tuple[Any, int]:
        self._flush()
        began = _clock()
        output = call()
        for _ in range(self._calls - 1):
            call()
        self._synchronize()
        spent = (_clock() - began) // self._calls
        # Enough of them that the wait at the end is little of it.
        self._calls = max(1, min(_MOST_CALLS, round(10 * _LAUNCH_NS / max(spent, 1))))
        return output, spent

    def _flush(self) -> None:
        import torch

        if self._scratch is None:
            self._scratch = torch.empty(_CACHE_BYTES, dtype=torch.uint8, device="mps")
        self._scratch.zero_()
        self._synchronize()


def _sysctl(name: str) -> str:
    done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _gpu_cores() -> str:
    done = subprocess.run(["ioreg", "-rc", "AGXAccelerator"], capture_output=True, text=True, check=False)
    counts = [line.rpartition("=")[2].strip() for line in done.stdout.splitlines() if '"gpu-core-count"' in line]
    return counts[0] if counts else ""


PLUGIN: Platform = Metal() if sys.platform == "darwin" and platform.machine() == "arm64" else EmulatedMetal()
