"""In a runner: a shim before each compiler that asks it for its remarks, and what came of it.

The shim keeps each source file beside the remarks, since programs remove theirs.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, TextIO

_COMPILERS = ("g++", "c++", "gcc", "cc", "clang++", "clang")
_SOURCES = (".cpp", ".cc", ".cxx", ".c++", ".C", ".c")
_GCC = "-fopt-info-vec-inline-all-internals"
_CLANG = "-Rpass=loop-vectorize -Rpass-missed=loop-vectorize -Rpass-analysis=loop-vectorize"
_USED = (
    *("loop vectorized using", "couldn't vectorize loop", "loop not vectorized", "vectorized loop"),
    *("basic block part vectorized", "possible dependence", "not inlinable"),
    *("in-order (fold-left) reduction", "type of def: reduction", "type of def: unknown"),
)
_MAX_BUILDS, _MAX_LINES, _MAX_SOURCE, _MAX_LOG = 16, 3000, 200_000, 256 << 20

_SHIM = """#!/bin/sh
mkdir -p {log}
printf '%s\\n' "$@" > {log}/$$.command
number=0
for word in "$@"; do
  case "$word" in
    *.cpp|*.cc|*.cxx|*.c++|*.C|*.c) number=$((number + 1)); cp -- "$word" {log}/$$.$number.source 2> /dev/null ;;
  esac
done
{run}
"""
_RUN_GCC = 'exec {real} "$@" {flags}={log}/$$.remarks'
_RUN_CLANG = """{real} "$@" {flags} 2> {log}/$$.remarks
status=$?
cat {log}/$$.remarks >&2
exit $status"""


def prepare(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Put the shims first in PATH."""
    folder, log = os.path.join(home, "shims"), os.path.join(home, "remarks")
    os.makedirs(folder, exist_ok=True)
    named = os.environ.get("CXX", "")
    for name in dict.fromkeys((*_COMPILERS, os.path.basename(named))):
        real = shutil.which(named if name == os.path.basename(named) else name)
        if not name or real is None:
            continue
        shim = os.path.join(folder, name)
        with open(shim, "w") as file:
            file.write(_shim(real, shlex.quote(log)))
        os.chmod(shim, 0o755)
    os.environ["PATH"] = folder + os.pathsep + os.environ.get("PATH", "")
    if os.sep in named:
        os.environ["CXX"] = os.path.join(folder, os.path.basename(named))
    return {}


def _shim(real: str, log: str) -> str:
    run, flags = (_RUN_CLANG, _CLANG) if _is_clang(os.path.realpath(real)) else (_RUN_GCC, _GCC)
    return _SHIM.format(log=log, run=run.format(real=shlex.quote(real), flags=flags, log=log))


@functools.cache
def _is_clang(compiler: str) -> bool:
    """Whether a compiler is clang, by what it says: on macOS g++ is clang."""
    return "clang" in subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout


def look(subject: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Every build that was seen: its command, its sources, and what was said about them."""
    log = os.path.join(subject.home, "remarks")
    names = sorted(os.listdir(log)) if os.path.isdir(log) else []
    builds = []
    for name in [name for name in names if name.endswith(".command")]:
        stem = os.path.join(log, name.removesuffix(".command"))
        arguments = _read(stem + ".command", 100_000).splitlines()
        files = [word for word in arguments if word.endswith(_SOURCES)]
        if not files:
            continue
        sources = [[file, _read(f"{stem}.{number}.source", _MAX_SOURCE)] for number, file in enumerate(files, 1)]
        builds.append({"words": arguments, "sources": sources, "remarks": _remarks(stem + ".remarks", files)})
    return {"builds": builds[:_MAX_BUILDS]}


def _remarks(path: str, files: list[str]) -> list[str]:
    """The lines about the program's own files; a reason may lie in a header, and follows its loop."""
    kept: list[str] = []
    notes: set[str] = set()
    follows = 0
    try:
        with open(path, errors="replace") as file:
            for line in _lines(file):
                worth = line.partition(":")[0] in files and _is_used(line) and line not in notes
                if worth or follows:
                    kept.append(line[:400].rstrip())
                    if ": note:" in line:
                        # The same is said again for each width that is tried.
                        notes.add(line)
                    follows = 2 if "couldn't vectorize loop" in line else max(0, follows - 1)
                if len(kept) >= _MAX_LINES:
                    break
    except OSError:
        pass
    return kept


def _lines(file: TextIO) -> Iterator[str]:
    left = _MAX_LOG
    while left > 0 and (line := file.readline(10_000)):
        left -= len(line)
        yield line


def _is_used(line: str) -> bool:
    """Whether the reader uses a line: outcomes of loops, what decides them, calls that stay calls."""
    return any(phrase in line for phrase in _USED) and "no grouped stores" not in line


def _read(path: str, most: int) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""
