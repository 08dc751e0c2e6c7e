"""The compiler's own remarks: which loops it vectorised, which it did not and why, with their source lines."""

from __future__ import annotations

import shutil
from typing import Any

from kforge.profilers import _remarks
from kforge.profilers.digest import NOT_VECTORISED
from kforge.profilers.face import Bench, NothingSeen, Profiler
from kforge.types import Profile

_MOST_LINES = 40
_MAX_BUILDS, _MAX_SOURCES, _MAX_TEXT, _MAX_LINES = 16, 32, 200_000, 3000
_SHOWN_FLAGS = ("-O", "-m", "-f", "-std")


class CompilerRemarks(Profiler):
    name = "compiler_remarks"
    what = "loops vectorised or not, calls not inlined, with source lines"
    probe_file = "_compiler_probe.py"

    def absent_because(self) -> str:
        if any(map(shutil.which, ("g++", "clang++", "c++"))):
            return ""
        return "no C++ compiler (Debian and Ubuntu: apt-get install g++; macOS: xcode-select --install)"

    def collect(self, bench: Bench) -> Profile:
        return profile_of(bench.ask({}))


def profile_of(reply: dict[str, Any]) -> Profile:
    """From the probe's answer; KeyError, TypeError or ValueError if it makes no sense."""
    remarks = _remarks.Remarks()
    texts: dict[str, str] = {}
    commands: dict[str, None] = {}
    room = _MAX_LINES
    for build in list(reply["builds"])[:_MAX_BUILDS]:
        texts |= {str(name)[:300]: str(text)[:_MAX_TEXT] for name, text in build["sources"][:_MAX_SOURCES]}
        words = [str(word)[:100] for word in build["words"][:1000]]
        commands[" ".join(word for word in words if word.startswith(_SHOWN_FLAGS))[:200]] = None
        said = [str(line)[:400] for line in build["remarks"][:room]]
        room -= len(said)
        _remarks.read(said, texts, remarks)
    if not commands:
        raise NothingSeen("no compilation was seen: the program builds nothing, or calls a compiler by its whole path")
    missed, vectorised, calls = remarks.missed(texts), remarks.vectorised(), list(remarks.calls.values())
    lines = [f"compiled with: {flags or 'no flags of note'}" for flags in list(commands)[:3]]
    if not any("-O" in flags for flags in commands):
        lines.append("without -O the compiler vectorises nothing and says nothing")
    lines += [f"{NOT_VECTORISED}{loop.file}:{loop.line} `{loop.source}`: {loop.reason}" for loop in missed]
    lines += [f"not inlined: {call.file}:{call.line} `{call.source}`: {call.what}, {call.why}" for call in calls]
    lines += [
        f"vectorised with {loop.vector_bytes}-byte vectors: {loop.file}:{loop.line} `{loop.source}`"
        for loop in vectorised
    ]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"and {len(lines) - _MOST_LINES + 1} more"]
    metrics = {
        "builds": len(commands),
        "unvectorised_loops": len(missed),
        "vectorised_loops": len(vectorised),
        "not_inlined": len(calls),
        "vector_bytes": max((loop.vector_bytes for loop in vectorised), default=0),
    }
    return Profile("compiler_remarks", {name: float(value) for name, value in metrics.items()}, "\n".join(lines))


PLUGIN = CompilerRemarks()
