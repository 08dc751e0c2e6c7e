"""The emulator's figures, each from one run on this machine.

    python benchmarks/emulation.py            # all of them
    python benchmarks/emulation.py builds     # one: builds, threads, kernels

Simple threads are those of `y[i] = x[i] * a + b`. Absolute times are this machine's.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kforge.emulation import metal, native_build

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "corpus_msl" / "right"
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
PARAMETERS = (
    "device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], "
    "uint t [[thread_position_in_threadgroup]]"
)
BODIES = {
    "simple": "y[i] = x[i] * 2.0f + 1.0f;",
    "simd_sum": "y[i] = simd_sum(x[i]);",
    "threadgroup memory and a barrier": "threadgroup float s[256]; s[t] = x[i]; "
    "threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[255 - t];",
}
BUILD_BAR, FAST_BAR, CHECKED_BAR = 1.5, 5.0, 0.5
"""Seconds, and millions of threads a second."""


def builds() -> None:
    """Every program of the corpus built, in both modes."""
    native_build.runtime()
    taken: list[float] = []
    make = metal.compile_shader

    def timed(source: str) -> metal.ShaderLibrary:
        began = time.perf_counter()
        library = make(source)
        taken.append(time.perf_counter() - began)
        return library

    for checked in (False, True):
        taken.clear()
        metal.set_checked(checked)
        with metal.installed():
            torch.mps.compile_shader = timed
            for path in sorted(CORPUS.glob("*.py")):
                _import(path)
        taken.sort()
        half = taken[len(taken) // 2]
        print(
            f"build, {_mode(checked)}: p50 {half:.2f} s, slowest {taken[-1]:.2f} s of {len(taken)} sources "
            f"(bar {BUILD_BAR} s: {BUILD_BAR / half:.0f} times better)"
        )


def _import(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def threads() -> None:
    """Threads a second, by what they do."""
    for checked, bar, count in ((False, FAST_BAR, 1 << 22), (True, CHECKED_BAR, 1 << 20)):
        metal.set_checked(checked)
        for name, body in BODIES.items():
            rate = count / _best(_launch(body, count)) / 1e6
            held = f" (bar {bar} M: {rate / bar:.1f} times better)" if name == "simple" else ""
            print(f"threads, {_mode(checked)}, {name}: {rate:.1f} M a second{held}")


def _launch(body: str, count: int) -> Callable[[], None]:
    library = metal.compile_shader(f"{HEAD}kernel void k({PARAMETERS}) {{ {body} }}")
    x, y = torch.rand(count), torch.zeros(count)
    return lambda: library.k(x, y, threads=count, group_size=256)


def kernels() -> None:
    """A product of two matrices of 512 x 512 with tiles in threadgroup memory."""
    size = 512
    body = f"""
    threadgroup float a[16][16], b[16][16];
    float sum = 0;
    for (uint k = 0; k < {size}; k += 16) {{
        a[t.y][t.x] = x[p.y * {size} + k + t.x];
        b[t.y][t.x] = w[(k + t.y) * {size} + p.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < 16; ++j) sum += a[t.y][j] * b[j][t.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }}
    y[p.y * {size} + p.x] = sum;"""
    parameters = (
        "device const float* x, device const float* w, device float* y, uint2 p [[thread_position_in_grid]], "
        "uint2 t [[thread_position_in_threadgroup]]"
    )
    library = metal.compile_shader(f"{HEAD}kernel void k({parameters}) {{ {body} }}")
    x, w, y = torch.rand(size, size), torch.rand(size, size), torch.zeros(size, size)
    for checked in (False, True):
        metal.set_checked(checked)
        spent = _best(lambda: library.k(x, w, y, threads=(size, size), group_size=(16, 16)), 2)
        torch.testing.assert_close(y, x @ w, rtol=1e-4, atol=1e-4)
        print(f"matrix product of {size}, tiled, {_mode(checked)}: {spent:.2f} s")


def _best(call: Callable[[], None], times: int = 5) -> float:
    call()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _mode(checked: bool) -> str:
    return "checked" if checked else "fast"


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores, {native_build.compiler()}, torch {torch.__version__}")
    chosen = sys.argv[1:] or ["builds", "threads", "kernels"]
    for figure in chosen:
        {"builds": builds, "threads": threads, "kernels": kernels}[figure]()
