"""What is wrong with what was asked for: all of it, each with the place it stands in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kforge.errors import KForgeError, UsageError

Where = tuple[str, ...]
"""The keys that lead to something in an experiment file: ("configurations", "text", "profiling")."""


@dataclass(frozen=True)
class Mistake:
    """One thing to put right."""

    where: Where
    sentence: str
    error: KForgeError | None = None
    """The error that it would have been by itself."""


class Mistaken(UsageError):
    """What was asked for cannot be done; every mistake is listed."""

    def __init__(self, mistakes: Sequence[Mistake], source: str = "", lines: dict[Where, int] | None = None) -> None:
        self.mistakes = tuple(mistakes)
        placed = [(_line(mistake.where, lines or {}), mistake.sentence) for mistake in self.mistakes]
        super().__init__(_one_text(*placed[0], source) if len(placed) == 1 else _list_text(placed, source))


def raise_if_any(mistakes: Sequence[Mistake]) -> None:
    """A single mistake is raised as the error it is, several as one Mistaken."""
    if len(mistakes) == 1 and mistakes[0].error is not None:
        raise mistakes[0].error
    if mistakes:
        raise Mistaken(mistakes)


def suggest(word: str, known: Iterable[str]) -> str:
    """The question whether another word was meant, or which there are."""
    names = list(known)
    matches = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {matches[0]}?" if matches else f"there are: {', '.join(names)}"


def _line(where: Where, lines: dict[Where, int]) -> int | None:
    """The line of the innermost key that has one."""
    return next((lines[where[:size]] for size in range(len(where), 0, -1) if where[:size] in lines), None)


def _one_text(line: int | None, sentence: str, source: str) -> str:
    place = source if line is None else f"{source}:{line}"
    return f"{place}: {sentence}" if source else sentence


def _list_text(placed: list[tuple[int | None, str]], source: str) -> str:
    title = f"{source} has {len(placed)} mistakes:" if source else f"there are {len(placed)} mistakes:"
    ordered = sorted(placed, key=lambda item: item[0] or 0)
    return "\n".join([title, *(f"  {f'line {line}: ' if line else ''}{sentence}" for line, sentence in ordered)])
