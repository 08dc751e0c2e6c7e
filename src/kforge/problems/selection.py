"""Which problems of a suite are wanted: levels, a limit, names and patterns, and filters that have a name."""

from __future__ import annotations

import ast
import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kforge.errors import UsageError
from kforge.platforms.metal import platform as metal
from kforge.types import Problem, text_hash

_NUMBERED = re.compile(r"(?:level)?(\d+)/(\d+)")
_LEVEL = re.compile(r"level(\d+)")


class NotInSuite(UsageError):
    """A word names nothing of the suite: a slip, which would silently change what is measured."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        """Which field of the selection the word stands in."""


@dataclass(frozen=True)
class Selection:
    """Which problems are wanted; as it stands, all of them but KernelBench's level 4."""

    levels: tuple[int, ...] = ()
    """Empty: all, but KernelBench's level 4 only where it is named."""
    limit: int | None = None
    """At most so many in all: the levels take turns, each gives its problems in order. None: no limit."""
    only: tuple[str, ...] = ()
    """Keys, names, numbers (level1/23 or 1/23), levels (level1) or patterns with *; empty: all."""
    without: tuple[str, ...] = ()
    """What is not wanted, named in the same ways, or the name of a filter."""
    draw: int | None = None
    """A seed: with a limit, each level gives problems drawn with it in place of its first ones. None: the first."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError("limit must be at least 1")
        if self.draw is not None and self.limit is None:
            raise ValueError("draw needs a limit: without one all problems are taken, and there is nothing to draw")


@dataclass(frozen=True)
class SuiteEntry:
    """A problem file of a suite, whether it can be used or not."""

    key: str
    name: str
    level: int | None
    number: int | None
    problem: Problem | None = None
    reason: str = ""
    """Why it cannot be used, where there is no problem."""
    place: int = 0
    """Which of the suite's places it is from."""


def missing_on(platform: str, problem: Problem) -> str:
    """Why torch has no reference for the problem on that platform's hardware; empty where nothing is known of it."""
    if platform != metal.PLUGIN.name:
        return ""
    used = [name for name in metal.MISSING if name in problem.source or _as_function(name) in problem.source]
    names = _names_in(problem.source) if used else set()
    used = [name for name in used if names & {name, _as_function(name)}]
    if not used:
        return ""
    return f"uses {' and '.join(used)}, which torch has no MPS kernel for: there is no reference on a Mac"


FILTERS: dict[str, Callable[[Problem], str]] = {"metal": lambda problem: missing_on("metal", problem)}
"""Filters by name: each says why it takes a problem away, or nothing."""


def choose(entries: Sequence[SuiteEntry], choice: Selection) -> tuple[list[SuiteEntry], dict[str, str]]:
    """The entries that are wanted and can be used; and the wanted ones that are left out, with the reason."""
    _check(entries, choice)
    kept: list[SuiteEntry] = []
    left_out: dict[str, str] = {}
    for entry in entries:
        if not _is_wanted(entry, choice):
            continue
        reason = entry.reason or _exclusion(entry, choice.without)
        if reason:
            left_out[entry.key] = reason
        else:
            kept.append(entry)
    return _some_of_each(kept, choice), left_out


def matches(entry: SuiteEntry, pattern: str) -> bool:
    numbered, level = _NUMBERED.fullmatch(pattern), _LEVEL.fullmatch(pattern)
    if numbered and (entry.level, entry.number) == (int(numbered[1]), int(numbered[2])):
        return True
    if level and entry.level == int(level[1]):
        return True
    return any(fnmatch.fnmatchcase(text.lower(), pattern.lower()) for text in (entry.key, entry.name))


def _is_wanted(entry: SuiteEntry, choice: Selection) -> bool:
    if choice.levels and entry.level not in choice.levels:
        return False
    return not choice.only or any(matches(entry, pattern) for pattern in choice.only)


def _exclusion(entry: SuiteEntry, without: tuple[str, ...]) -> str:
    assert entry.problem is not None
    for word in without:
        reason = FILTERS[word](entry.problem) if word in FILTERS else ""
        if word not in FILTERS and matches(entry, word):
            reason = f"not wanted: without {word}"
        if reason:
            return reason
    return ""


def _some_of_each(entries: list[SuiteEntry], choice: Selection) -> list[SuiteEntry]:
    """The first entries of each place and level, so that a small number has something of all that was asked for.

    With a seed to draw with, the first in an order that the seed and a problem's own key decide: neither the other
    problems nor the limit change whether one comes before another.
    """
    if choice.limit is None or len(entries) <= choice.limit:
        return entries
    order = (
        entries if choice.draw is None else sorted(entries, key=lambda entry: text_hash(f"{choice.draw} {entry.key}"))
    )
    seen: dict[tuple[int, int | None], int] = {}
    turns: dict[str, int] = {}
    for entry in order:
        group = (entry.place, entry.level)
        turns[entry.key] = seen[group] = seen.get(group, 0) + 1
    chosen = set(sorted(turns, key=lambda key: turns[key])[: choice.limit])
    return [entry for entry in entries if entry.key in chosen]


def _check(entries: Sequence[SuiteEntry], choice: Selection) -> None:
    levels = sorted({entry.level for entry in entries if entry.level is not None})
    for level in choice.levels:
        if level not in levels:
            known = ", ".join(map(str, levels)) or "none: its files are in no folder level1, level2, ..."
            raise NotInSuite("levels", f"there is no level {level} in the suite; its levels are: {known}")
    for word in choice.only:
        if not any(matches(entry, word) for entry in entries):
            raise NotInSuite("only", f"only {word!r} names no problem of the suite{_suggestion(word, entries, ())}")
    for word in choice.without:
        if word not in FILTERS and not any(matches(entry, word) for entry in entries):
            near = f"{_suggestion(word, entries, FILTERS)}; filters are: {', '.join(FILTERS)}"
            raise NotInSuite("without", f"without {word!r} names no problem of the suite{near}")


def _suggestion(word: str, entries: Sequence[SuiteEntry], more: Iterable[str]) -> str:
    known = {text: text for entry in entries for text in (entry.key, entry.name)} | {text: text for text in more}
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; problems are called like {entries[0].key!r}" if entries else ""


def _as_function(layer: str) -> str:
    """What torch.nn.functional calls a layer: max_pool3d."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", layer).lower()


def _names_in(source: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(source)))
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return called | imported
