"""Problems too large for an emulator: refused where that is known, and what helps where it shows."""

from __future__ import annotations

from kforge.errors import ProblemError
from kforge.platforms.base import Platform
from kforge.types import Problem

_MOST_BYTES = 256 << 20
"""What a call may read and write in emulation: checked mode keeps 16 bytes for each that is touched."""
_SMALLER = (
    "this problem has no sizes of its own for an emulator. Give it some: a line like KFORGE = "
    '{"sizes": {"emulator": {"NAME": VALUE}}} in its file, each NAME a constant of the module (docs/problems.md)'
)


def refuse_large(problem: Problem, platform: Platform, call_bytes: int) -> None:
    """ProblemError where a problem has no sizes for an emulator, and a call of its own moves more than one can."""
    if size_advice(problem, platform) and call_bytes > _MOST_BYTES:
        raise ProblemError(
            f"a call reads and writes {call_bytes >> 20} MiB, more than can be emulated ({_MOST_BYTES >> 20} MiB), and "
            f"{_SMALLER}",
            path=problem.path or problem.name,
        )


def size_advice(problem: Problem, platform: Platform) -> str:
    """What helps where an emulated program had too much to do; empty where nothing of this kind does."""
    if not platform.emulated or problem.sizes.get(platform.device_class):
        return ""
    return f"\n  (an emulator is slow, and {_SMALLER})"
