"""The compiler's own remarks: which loops it vectorised, which it did not and why, with their source lines."""

from __future__ import annotations

import shutil
from typing import Any

from kforge.profilers import _remarks
from kforge.profilers._facts import IN_ORDER, NOT_VECTORISED
from kforge.profilers._format import cut
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Profile

_MOST_LINES = 40
_MAX_BUILDS, _MAX_SOURCES, _MAX_TEXT, _MAX_LINES = 16, 32, 200_000, 3000
_SHOWN_FLAGS = ("-O", "-m", "-f", "-std")


class CompilerRemarks(Profiler):
    name = "compiler_remarks"
    what = "loops vectorised or not, calls not inlined, with source lines"
    probe_file = "_compiler_probe.py"

    def unavailable_reason(self) -> str:
        if any(map(shutil.which, ("g++", "clang++", "c++"))):
            return ""
        return "no C++ compiler (Debian and Ubuntu: apt-get install g++; macOS: xcode-select --install)"

    def collect(self, context: ProfilingContext) -> Profile:
        return profile_of(context.ask({}))


def profile_of(reply: dict[str, Any]) -> Profile:
    """The profile of the probe's answer; KeyError, TypeError or ValueError if it makes no sense."""
    remarks = _remarks.Remarks()
    texts: dict[str, str] = {}
    commands: dict[str, None] = {}
    room = _MAX_LINES
    for build in list(reply["builds"])[:_MAX_BUILDS]:
        texts |= {str(name)[:300]: str(text)[:_MAX_TEXT] for name, text in build["sources"][:_MAX_SOURCES]}
        arguments = [str(word)[:100] for word in build["words"][:1000]]
        commands[cut(" ".join(word for word in arguments if word.startswith(_SHOWN_FLAGS)), 200)] = None
        remark_lines = [str(line)[:400] for line in build["remarks"][:room]]
        room -= len(remark_lines)
        _remarks.read(remark_lines, texts, remarks)
    if not commands:
        raise NothingSeen("no compilation was seen: the program builds nothing, or calls a compiler by its whole path")
    lines = [f"compiled with: {flags or 'no flags of note'}" for flags in list(commands)[:3]]
    if not any("-O" in flags for flags in commands):
        lines.append("without -O the compiler vectorises nothing and says nothing")
    missed, vectorised, calls = remarks.missed_loops(), remarks.vectorised_loops(), remarks.calls_not_inlined()
    by_hand = remarks.count_by_hand()
    if by_hand:
        lines.append(f"{by_hand} {'loop works' if by_hand == 1 else 'loops work'} on vectors written by hand")
    metrics = {
        "unvectorised_loops": len(missed),
        "in_order_sums": sum(loop.in_order for loop in missed),
        "vectorised_loops": len(vectorised),
        "by_hand_loops": by_hand,
        "not_inlined": len(calls),
        "vector_bytes": max((loop.vector_bytes for loop in vectorised if not loop.any_width), default=0),
    }
    text = "\n".join(_shorten([*lines, *_remark_lines(missed, vectorised, calls)]))
    return Profile("compiler_remarks", {name: float(value) for name, value in metrics.items()}, text)


def _remark_lines(
    missed: list[_remarks.LoopRemark], vectorised: list[_remarks.LoopRemark], calls: list[_remarks.CallRemark]
) -> list[str]:
    """A line for each remark, what can be mended first."""
    return [
        *(_mark(loop) + _place_text(loop) + (f": {loop.reason}" if loop.reason else "") for loop in missed),
        *(f"not inlined: {_place_text(call)}: {call.what}, {call.why}" for call in calls),
        *(f"vectorised with {_width(loop)}: {_place_text(loop)}" for loop in vectorised),
    ]


def _width(loop: _remarks.LoopRemark) -> str:
    return "vectors of the processor's length" if loop.any_width else f"{loop.vector_bytes}-byte vectors"


def _mark(loop: _remarks.LoopRemark) -> str:
    return IN_ORDER if loop.in_order else NOT_VECTORISED


def _place_text(item: _remarks.LoopRemark | _remarks.CallRemark) -> str:
    return f"{item.file}:{item.line} `{item.source}`"


def _shorten(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[: _MOST_LINES - 1], f"and {len(lines) - _MOST_LINES + 1} more"]


PLUGIN = CompilerRemarks()
