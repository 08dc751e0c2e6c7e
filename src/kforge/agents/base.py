"""What is asked of the two agents. A language model or a set of rules may stand behind either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kforge.types import Attempt, Donor, Move, Problem, Recommendation, Usage


@dataclass(frozen=True)
class Target:
    """What agents know of the platform they write for."""

    name: str
    guide: str
    """How to write for it, filled in from this machine."""
    example: tuple[str, str]
    """The single-shot pair: a reference module, and the same module on this platform."""
    device_class: str = "cpu"
    """Which of a problem's sizes programs are written for."""
    verified_as: str = ""
    """Which of them they are verified with, where that is done on an emulator; empty: the same."""
    backward_example: tuple[str, str] | None = None
    """The pair for a module with its gradients; None where the platform has none."""


@dataclass(frozen=True)
class Situation:
    """All an agent may know when it is asked: the frozen past of one chain."""

    problem: Problem
    target: Target
    move: Move
    past: tuple[Attempt, ...] = ()
    """This chain's attempts so far, in order."""
    donor: Donor | None = None
    """A program from elsewhere to learn from."""
    recommendation: Recommendation | None = None
    """The analyst's advice, where the move is to optimise."""

    @property
    def parent(self) -> Attempt | None:
        """The attempt whose program the move starts from."""
        return next((attempt for attempt in self.past if attempt.move.step == self.move.parent), None)

    @property
    def shown_attempt(self) -> Attempt | None:
        """The attempt whose program the writer is shown: the parent, or what that started from if it has none."""
        ancestor = self.parent
        while ancestor is not None and ancestor.candidate is None:
            step = ancestor.move.parent
            ancestor = next((attempt for attempt in self.past if attempt.move.step == step), None)
        return ancestor


@dataclass(frozen=True)
class Draft:
    """What a writer produced."""

    source: str | None
    """The program, or None."""
    reason: str = ""
    """Why there is none."""
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()
    """How the program was found in the reply."""
    recommendation: Recommendation | None = None
    """The change that was made, where it is another than the one advised; None: that one."""
    exhausted: bool = False
    """The writer has nothing more to try: the chain ends, and this is no attempt."""
    seconds: float = 0.0
    """How long its replies took when they were given, which may have been before a break."""


@dataclass(frozen=True)
class Advice:
    """What an analyst produced."""

    recommendation: Recommendation | None
    """None where nothing usable came back even when asked again."""
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    """How long its replies took when they were given."""


class Writer(Protocol):
    """The generation agent."""

    async def write(self, situation: Situation) -> Draft:
        """The next program for this situation."""
        ...


class Analyst(Protocol):
    """The performance-analysis agent."""

    async def advise(self, situation: Situation) -> Advice:
        """One recommendation for `situation.parent`, which is correct and has been profiled."""
        ...
