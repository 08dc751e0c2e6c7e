"""What is asked of a search."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kforge.types import Attempt, Move, Plan, Stop


@runtime_checkable
class Search(Protocol):
    """Names the next move of a chain. It keeps nothing: the history and the plan, with its seed, say all.

    One that optimises a program only while it is the best of its chain says `starts_from_best = True`: the others need
    no profile then.
    """

    @property
    def name(self) -> str:
        """The file's name."""
        ...

    def propose(self, history: tuple[Attempt, ...], chain: int, plan: Plan) -> Move | Stop:
        """The next move of `chain`, given every attempt of the run, or why the chain is over."""
        ...
