"""Suites: many problems by the places they are in. What cannot be used is left out, with the reason.

open_suite(["kernelbench:../KernelBench"], Selection(levels=(1, 2), limit=20, without=("metal",)))
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kforge.errors import ProblemError, UsageError
from kforge.problems.checkout import commits_of
from kforge.problems.places import File, files_in
from kforge.problems.selection import Selection, SuiteEntry, choose
from kforge.trace_definition import SOL_FILE
from kforge.types import Problem

_SHOWN = 3


@dataclass(frozen=True)
class Suite:
    """Problems, by what they are called in reports."""

    name: str
    """The places, as the user named them."""
    problems: dict[str, Problem]
    """The problems by key (level1/23_Softmax), in order."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Problems that were wanted and cannot be used, or that a filter took away, and why."""
    version: str = ""
    """The commit of the checkout that the files are in, with a + where they were changed; empty without one."""


def open_suite(
    places: Sequence[str], choice: Selection = Selection(), folder: Path = Path(), *, here: bool = True
) -> Suite:
    """The problems of all places together, each file once.

    A place is `kernelbench:PATH` (a checkout, its folder of levels, or one level), `flashinfer:PATH` or `sol:PATH` (a
    dataset of Definitions, or a part of one), `bundled`, `bundled:level2`, `bundled:level2/3`, `training` likewise, a
    folder, or a file. UsageError says what is wrong with a place, or that nothing is left.
    Relative paths start in `folder`. `here`: problems run on this machine, so what they import must be installed.
    """
    files: dict[Path, File] = {}
    home: dict[Path, int] = {}
    for number, place in enumerate(places):
        for file in files_in(place, choice, folder):
            files.setdefault(file.path.resolve(), file)
            home.setdefault(file.path.resolve(), number)
    keys = _keys(list(files))
    entries = [replace(_entry(keys[path], file, here), place=home[path]) for path, file in files.items()]
    kept, left_out = choose(entries, choice)
    name = ", ".join(places[:_SHOWN]) + (f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else "")
    if not kept:
        raise UsageError(_no_problem_message(name, left_out))
    problems = {entry.key: entry.problem for entry in kept if entry.problem is not None}
    return Suite(name, problems, left_out, commits_of(_home(path) for path in files))


def _keys(paths: Sequence[Path]) -> dict[Path, str]:
    """What each file is called: its level and name, with as many folders before it as make it unlike all others."""
    depth = {path: 2 if re.fullmatch(r"level\d+", path.parent.name) else 1 for path in paths}
    while True:
        keys = {path: _key(path, depth[path]) for path in paths}
        by_key: dict[str, list[Path]] = {}
        for path, key in keys.items():
            by_key.setdefault(key, []).append(path)
        alike = [path for group in by_key.values() if len(group) > 1 for path in group]
        if not alike:
            return keys
        for path in alike:
            depth[path] += 1


def _key(path: Path, depth: int) -> str:
    """The last `depth` parts of a path, without the suffix unless only that tells it from others; always printable."""
    # A Definition of SOL-ExecBench is called as its folder.
    path = path.parent if path.name == SOL_FILE else path
    whole = path if depth > len(path.parts) else path.with_suffix("") if path.suffix in (".py", ".json") else path
    return "/".join(whole.parts[-depth:]).encode("utf-8", "backslashreplace").decode()


def _home(path: Path) -> Path:
    """The folder that stands for a file's checkout: levels of one suite share theirs."""
    folder = path.parent
    return folder.parent if re.fullmatch(r"level\d+", folder.name) else folder


def _entry(key: str, file: File, here: bool) -> SuiteEntry:
    path = file.path
    try:
        problem = Problem.from_file(path)
        reason = _missing_packages(problem) if here else ""
        if reason:
            raise ProblemError(reason, path=str(path))
    except ProblemError as error:
        if file.must:
            raise
        level, number = re.fullmatch(r"level(\d+)", path.parent.name), re.match(r"(\d+)(_|$)", path.stem)
        numbers = (int(level[1]) if level else None, int(number[1]) if number else None)
        return SuiteEntry(key, path.stem, *numbers, reason=_without_path(error))
    return SuiteEntry(key, problem.name, problem.level, problem.number, problem)


def _without_path(error: ProblemError) -> str:
    """What is wrong with a file whose name stands beside it."""
    where = error.path if error.line is None else f"{error.path}:{error.line}"
    message = str(error).removeprefix(f"{where}: ")
    return message if error.line is None else f"line {error.line}: {message}"


def _missing_packages(problem: Problem) -> str:
    """Which packages a problem needs that are not here. Without torch nothing runs: that is for the platform to say."""
    wanted: list[str] = []
    for node in ast.parse(problem.source).body:
        if isinstance(node, ast.Import):
            wanted += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            wanted.append(node.module or "")
    roots = {name.partition(".")[0] for name in wanted} - {"torch"}
    missing = sorted(name for name in roots if not _is_installed(name))
    if not missing:
        return ""
    return f"imports {' and '.join(missing)}: not installed here (pip install {' '.join(missing)})"


@functools.cache
def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _no_problem_message(name: str, left_out: dict[str, str]) -> str:
    beginning = f"{name}: no problem is left"
    if not left_out:
        return f"{beginning} of those that levels and only name; one of the two must go"
    shown = "".join(f"\n  {key}: {reason}" for key, reason in list(left_out.items())[:_SHOWN])
    return f"{beginning}; {len(left_out)} cannot be used or are not wanted:{shown}" + (
        f"\n  and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    )
