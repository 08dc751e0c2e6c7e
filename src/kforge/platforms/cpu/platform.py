"""The CPU: C++ with OpenMP and SIMD, compiled by g++ or clang."""

from __future__ import annotations

import functools
import glob
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from kforge.platforms.base import Dialect, Platform
from kforge.platforms.cpu import arm_cores

_CXX = ("g++", "clang++", "c++")
_VECTORS = (
    ("avx512f", "AVX-512, 512 bits"),
    ("avx2", "AVX2, 256 bits"),
    ("sve", "SVE"),
    ("asimd", "NEON, 128 bits"),
    ("sse2", "SSE2, 128 bits"),
)


class Cpu(Platform):
    name = "cpu"
    device_class = "cpu"
    device = "cpu"
    profilers = ("torch_profiler", "roofline", "compiler_remarks")
    sanitizers = (("AddressSanitizer", ("{python}", "-I", "-B", "{package}/platforms/cpu/sanitized_run.py", "{home}")),)
    dialect = Dialect(language="cpp", shared_marks=r"#\s*pragma\s+omp\b|\bg\+\+|<immintrin\.h>|<arm_neon\.h>")
    terms = {
        "kernel": 'function, `extern "C" void`, built by g++ and loaded by `ctypes`',
        "grid": "outer loop, `#pragma omp parallel for`",
        "block": "iteration of the outer loop: a tile that one core handles alone",
        "thread": "iteration of the inner loop: one lane of a vector",
        "global index": "the loop's variable",
        "warp": "vector register, `#pragma omp simd`; 4 to 16 floats",
        "warp exchange": "`#pragma omp simd reduction(+:sum)`",
        "shared memory": "small array on the stack, which stays in the core's own cache",
        "barrier": "none within a tile; the end of the parallel loop waits for all",
        "global memory": "memory, `float*`",
        "constant": "argument by value",
        "wide access": "vectors, left to the compiler in a simple inner loop",
        "atomic": "`#pragma omp atomic`, or a sum for each thread",
        "matrix unit": "none: tiles in the cache, or the library",
        "functions": "`expf`, `1.0f / sqrtf`, `fmaxf`, `tanhf`",
        "double": "`double`",
    }

    def unavailable_reason(self) -> str:
        if not self.compilers():
            return "no C++ compiler (Debian and Ubuntu: apt-get install g++; macOS: xcode-select --install)"
        return ""

    @functools.cache  # noqa: B019  one instance lives as long as the process
    def compilers(self) -> dict[str, str]:
        versions = {}
        for name in _CXX:
            path = shutil.which(name)
            if path:
                done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
                if done.returncode == 0 and done.stdout:
                    versions[name] = done.stdout.splitlines()[0]
        return versions

    def folders(self) -> tuple[str, ...]:
        """Compilers that live outside the system's folders bring their installation with them."""
        paths = [os.path.realpath(path) for path in map(shutil.which, (*_CXX, "ninja", "ld", "as")) if path]
        return tuple({os.path.dirname(os.path.dirname(path)) for path in paths if not path.startswith("/usr/")} - {"/"})

    def environment(self, number: int = 0) -> dict[str, str]:
        compilers = self.compilers()
        return {"CXX": next(iter(compilers))} if compilers else {}

    @functools.cache  # noqa: B019
    def facts(self, number: int = 0) -> dict[str, str]:
        flags = _cpu_flags()
        return {
            "processor": _cpu_name(),
            "architecture": platform.machine(),
            "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
            "vectors": next((description for flag, description in _VECTORS if flag in flags), "unknown"),
            "caches": _caches(),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB",
            "compiler": next(iter(self.compilers().values()), "none"),
        }


def _cpuinfo_text() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return file.read()
    except OSError:
        return ""


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo."""
    lines = [line.partition(":") for line in _cpuinfo_text().splitlines() if ":" in line]
    return {key.strip(): value.strip() for key, _, value in reversed(lines)}


def _cpu_name() -> str:
    if sys.platform == "darwin":
        done = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False)
        return done.stdout.strip() or platform.processor()
    # Where Arm's cores have a "model name" at all, it is the architecture's.
    return arm_cores.names_in(_cpuinfo_text()) or _cpuinfo().get("model name") or platform.processor() or "unknown"


def _cpu_flags() -> set[str]:
    info = _cpuinfo()
    return set((info.get("flags") or info.get("Features") or "").split())


def _caches() -> str:
    sizes = {}
    for folder in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        try:
            level, kind, size = (Path(folder, name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            sizes[f"L{level}"] = size
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "unknown"


PLUGIN = Cpu()
