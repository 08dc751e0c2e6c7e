"""What is wrong with what was asked for: all of it, each with the place it stands in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kforge.errors import UsageError

Where = tuple[str, ...]
"""The keys that lead to something in an experiment file: ("configurations", "text", "profiling")."""


@dataclass(frozen=True)
class Mistake:
    """One thing to put right."""

    where: Where
    words: str


class Mistaken(UsageError):
    """What was asked for cannot be done; every mistake is listed."""

    def __init__(self, mistakes: Sequence[Mistake], source: str = "", lines: dict[Where, int] | None = None) -> None:
        self.mistakes = tuple(mistakes)
        placed = [(_line(mistake.where, lines or {}), mistake.words) for mistake in self.mistakes]
        super().__init__(_one(*placed[0], source) if len(placed) == 1 else _several(placed, source))


def near(word: str, known: Iterable[str]) -> str:
    """The question whether another word was meant, or which there are."""
    names = list(known)
    found = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {found[0]}?" if found else f"there are: {', '.join(names)}"


def _line(where: Where, lines: dict[Where, int]) -> int | None:
    """The line of the innermost key that has one."""
    return next((lines[where[:size]] for size in range(len(where), 0, -1) if where[:size] in lines), None)


def _one(line: int | None, words: str, source: str) -> str:
    place = source if line is None else f"{source}:{line}"
    return f"{place}: {words}" if source else words


def _several(placed: list[tuple[int | None, str]], source: str) -> str:
    title = f"{source} has {len(placed)} mistakes:" if source else f"there are {len(placed)} mistakes:"
    ordered = sorted(placed, key=lambda item: item[0] or 0)
    return "\n".join([title, *(f"  {f'line {line}: ' if line else ''}{words}" for line, words in ordered)])
