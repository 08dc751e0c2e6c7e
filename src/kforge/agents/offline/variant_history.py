"""What a chain's past says about the offline writer's moves: all its state is there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kforge.agents.base import Situation
from kforge.agents.offline import variants
from kforge.types import Attempt

_USELESS = re.compile(r"^([\w+]+) (?:changes nothing here$|cannot be lifted: )")


def idle_note(name: str) -> str:
    """The note that a variant gives the same program as one before it."""
    return f"{name} changes nothing here"


def failed_note(name: str, reason: str) -> str:
    """The note that a variant cannot be had."""
    return f"{name} cannot be lifted: {reason}"


@dataclass(frozen=True)
class TriedVariant:
    """A variant that has been judged."""

    name: str
    attempt: Attempt


def tried_variants(situation: Situation) -> tuple[TriedVariant, ...]:
    """Every variant written so far, in order."""
    judged = []
    for attempt in situation.past:
        name = variants.variant_of(attempt.candidate.source) if attempt.candidate else None
        if name is not None:
            judged.append(TriedVariant(name, attempt))
    return tuple(judged)


def spent_names(situation: Situation) -> set[str]:
    """Names that need not be written again: tried, or known to change nothing or to be out of reach."""
    names = {item.name for item in tried_variants(situation)}
    for attempt in situation.past:
        names |= {match.group(1) for note in attempt.notes if (match := _USELESS.match(note))}
    return names


def parent_variant(situation: Situation) -> str:
    """The variant of the program the move starts from."""
    parent = situation.parent
    name = variants.variant_of(parent.candidate.source) if parent and parent.candidate else None
    return name or variants.DEFAULT


def body(source: str) -> str:
    """A program without its header, to tell whether two are the same."""
    return source.split('"""', 2)[-1]
