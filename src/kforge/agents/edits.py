"""Edits a model writes instead of a whole program: unified diffs and search-and-replace blocks.

Line numbers in model-written diffs are rarely right, so a hunk is found by its text.
"""

from __future__ import annotations

import re

_SEARCH = re.compile(r"^<{5,}[^\n]*\n(.*?)^={5,}[^\n]*\n(.*?)^>{5,}[^\n]*$", re.DOTALL | re.MULTILINE)
_HUNK = re.compile(r"^@@.*@@.*$|^@@\s*$", re.MULTILINE)


class DoesNotApply(Exception):
    """The edits do not fit the program; the message says which."""


def looks_like_edits(text: str) -> bool:
    """Whether a text is a diff or search-and-replace blocks."""
    return bool(_SEARCH.search(text) or (_HUNK.search(text) and re.search(r"^[+-]", text, re.MULTILINE)))


def apply(text: str, source: str) -> str:
    """The program with the edits made; DoesNotApply otherwise."""
    pairs = [(match[1], match[2]) for match in _SEARCH.finditer(text)] or _hunks(text)
    for number, (old, new) in enumerate(pairs, 1):
        source = _replace(source, old, new, number)
    return source


def _hunks(text: str) -> list[tuple[str, str]]:
    """(old text, new text) of each hunk."""
    hunks: list[tuple[str, str]] = []
    old: list[str] = []
    new: list[str] = []
    inside = False
    for line in text.split("\n"):
        if line.startswith(("--- ", "+++ ", "diff ", "index ")):
            inside = False
        elif _HUNK.match(line):
            _add_hunk(hunks, old, new)
            old, new, inside = [], [], True
        elif inside and line.startswith("-"):
            old.append(line[1:])
        elif inside and line.startswith("+"):
            new.append(line[1:])
        elif inside and line.startswith("\\"):
            continue
        elif inside:
            # A context line; models often drop the leading space of empty ones.
            old.append(line[1:] if line.startswith(" ") else line)
            new.append(line[1:] if line.startswith(" ") else line)
    _add_hunk(hunks, old, new)
    return hunks


def _add_hunk(hunks: list[tuple[str, str]], old: list[str], new: list[str]) -> None:
    while old and new and not old[-1].strip() and not new[-1].strip():
        old.pop()
        new.pop()
    if old or new:
        hunks.append(("\n".join(old) + "\n", "\n".join(new) + "\n" if new else ""))


def _replace(source: str, old: str, new: str, number: int) -> str:
    lines, wanted = source.split("\n"), old.rstrip("\n").split("\n")
    if not old.strip():
        raise DoesNotApply(f"edit {number} does not say which lines it replaces")
    places = [
        start for start in range(len(lines) - len(wanted) + 1) if _same(lines[start : start + len(wanted)], wanted)
    ]
    if not places:
        raise DoesNotApply(f"edit {number}: the program has no lines like {wanted[0].strip()!r:.80}")
    if len(places) > 1:
        raise DoesNotApply(f"edit {number}: {len(places)} places of the program fit {wanted[0].strip()!r:.80}")
    replacement = new.rstrip("\n").split("\n") if new.strip("\n") else []
    lines[places[0] : places[0] + len(wanted)] = replacement
    return "\n".join(lines)


def _same(lines: list[str], wanted: list[str]) -> bool:
    return all(line.rstrip() == want.rstrip() for line, want in zip(lines, wanted, strict=True))
