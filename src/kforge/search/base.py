"""What is asked of a search."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kforge.types import Attempt, Move, Plan, Stop


@runtime_checkable
class Search(Protocol):
    """Names the next move of a chain. It keeps nothing: the history and the plan, with its seed, say all."""

    @property
    def name(self) -> str:
        """The file's name."""
        ...

    starts_from_best: bool
    """Whether a program is only ever optimised while it is the best of its chain: others need no profile then. May be
    left out, which means no.
    """

    def propose(self, history: tuple[Attempt, ...], chain: int, plan: Plan) -> Move | Stop:
        """The next move of `chain`, given every attempt of the run, or why the chain is over."""
        ...
