"""What a program changed in the one it was made from, as edits that make the one into the other."""

from __future__ import annotations

import difflib

Edit = tuple[int, int, list[str]]
"""Lines [first, last) of the parent, counted from 0, become the new ones."""


def edits(parent: str, child: str) -> list[Edit]:
    """The edits from top to bottom; none where both programs are equal."""
    before, after = parent.split("\n"), child.split("\n")
    matcher = difflib.SequenceMatcher(None, before, after)
    return [(first, last, after[start:end]) for tag, first, last, start, end in matcher.get_opcodes() if tag != "equal"]


def apply_edits(parent: str, made: list[Edit]) -> str:
    """The child, from its parent and the edits: what script.js must do with them; for tests."""
    lines, place, done = parent.split("\n"), 0, list[str]()
    for first, last, new in made:
        done += [*lines[place:first], *new]
        place = last
    return "\n".join([*done, *lines[place:]])
