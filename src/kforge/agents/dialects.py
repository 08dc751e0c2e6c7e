"""Which platform a text is written for, and what language its fence names, as far as the text tells."""

from __future__ import annotations

import re
from pathlib import PurePath

_MARKS = {
    "cuda": r"\b__global__\b|\b__shared__\b|\b__syncthreads\b|\bthreadIdx\b",
    "triton": r"@triton\.(?:jit|autotune)\b|\btriton\.language\b",
    "metal": r"\bmetal_stdlib\b|\[\[\s*thread\w*_in_\w+|\bmps\.compile_shader\b|\bthreadgroup_barrier\b",
    "opencl": r"\bpyopencl\b|\b__kernel\b|\bget_global_id\b",
}
"""What only programs for that platform say."""
_CPU = r"#\s*pragma\s+omp\b|\bg\+\+|<immintrin\.h>|<arm_neon\.h>"
"""Programs for accelerators may say this too."""
_SUFFIXES = {
    ".py": "python",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".metal": "metal",
    ".cl": "opencl",
    ".c": "c",
    **dict.fromkeys((".cpp", ".cc", ".cxx", ".h", ".hpp"), "cpp"),
}
_LANGUAGES = {"cuda": "cuda", "triton": "python", "metal": "metal", "opencl": "opencl", "cpu": "cpp"}
_PYTHON = re.compile(r"^(?:import \w|from [\w.]+ import |def \w+\(|class \w+.*:$)", re.MULTILINE)


def platform_of(source: str) -> str:
    """The platform a program is written for; empty where its text names none, or several."""
    found = [name for name, marks in _MARKS.items() if re.search(marks, source)]
    if not found:
        return "cpu" if re.search(_CPU, source) else ""
    return found[0] if len(found) == 1 else ""


def language_of(source: str, name: str = "") -> str:
    """What a fence around the text is called; `name` is that of its file. Empty where it cannot be told."""
    known = _SUFFIXES.get(PurePath(name).suffix.lower())
    if known:
        return known
    return "python" if _PYTHON.search(source) else _LANGUAGES.get(platform_of(source), "")
