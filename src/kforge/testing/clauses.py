"""What a clause of a contract is, and what came of asking for it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kforge.errors import PlatformFault

Subject = TypeVar("Subject")


class ClauseState(enum.Enum):
    """How a clause stands."""

    KEPT = "kept"
    BROKEN = "broken"
    SKIPPED = "skipped"


class Broken(Exception):
    """A clause is not kept; the message says what to do."""


@dataclass(frozen=True)
class ClauseResult:
    """One clause, looked at."""

    clause: str
    """The clause's name."""
    mark: ClauseState
    said: str
    """What was seen, or what to do."""


@dataclass(frozen=True)
class Clause(Generic[Subject]):
    """One thing that must be so."""

    name: str
    """A word or two."""
    look: Callable[[Subject], str]
    """Says what was seen; raises Broken if it is not as it must be."""
    where_present: bool = False
    """Whether it can only be looked at where the platform can be used."""


def ask(clause: Clause[Subject], subject: Subject) -> ClauseResult:
    """What came of one clause. Whatever is raised is a finding, too, but for a fault of the platform's own code."""
    try:
        return ClauseResult(clause.name, ClauseState.KEPT, clause.look(subject))
    except Broken as broken:
        return ClauseResult(clause.name, ClauseState.BROKEN, str(broken))
    except PlatformFault:
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:600]
        return ClauseResult(clause.name, ClauseState.BROKEN, f"it raised {type(error).__name__}: {message}")
