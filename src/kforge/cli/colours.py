"""The colour of an outcome, the same wherever it is printed."""

from __future__ import annotations

from kforge.types import Outcome

_COLOURS = {Outcome.CORRECT: "green", Outcome.REJECTED: "magenta", Outcome.MISMATCH: "red"}


def colour_of(outcome: Outcome) -> str:
    return _COLOURS.get(outcome, "yellow")
