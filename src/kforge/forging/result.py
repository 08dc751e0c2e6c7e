"""What a run came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kforge.errors import UsageError
from kforge.types import Attempt, Request, Stop, Usage, Verdict, best_attempt
from kforge.whole_file import write_for_user


@dataclass(frozen=True)
class Result:
    """A run's history, and the best correct program in it."""

    run: str
    """The run's name in the store."""
    request: Request
    history: tuple[Attempt, ...]
    """Every attempt, in the order they were recorded."""
    stops: tuple[Stop, ...] = ()
    """Why each chain ended; empty for a run read back from the store."""
    usage: Usage = Usage()
    """What the run's model calls cost, those that led to no attempt included."""

    @property
    def best(self) -> Attempt | None:
        """The fastest correct attempt; None if no program was correct."""
        return best_attempt(self.history)

    @property
    def waiting(self) -> bool:
        """Whether a chain waits for a report from another machine."""
        return any(stop.reason == "waiting" for stop in self.stops)

    @property
    def source(self) -> str:
        """The best correct program; UsageError if there is none."""
        candidate = self._winner().candidate
        assert candidate is not None
        return candidate.source

    @property
    def verdict(self) -> Verdict | None:
        """The judge's verdict on it."""
        return self.best.verdict if self.best else None

    def save(self, path: str | Path) -> Path:
        """Write the best program to a file, with a comment that says where it comes from."""
        target = Path(path)
        write_for_user(target, self.annotated_source())
        return target

    def annotated_source(self) -> str:
        """The best program under a comment that says where it comes from and what was measured."""
        winner = self._winner()
        problem, timing = self.request.problem, winner.verdict.timing
        lines = [
            f"Forged by KForge for {problem.name} (problem {problem.id}) on platform {self.request.platform}.",
            f"Written by {winner.model}, run {self.run}, step {winner.move.step}.",
            winner.verdict.headline,
        ]
        if timing is not None and timing.speedup_vs_best is not None:
            lines.append(f"Against the best baseline: {timing.speedup_vs_best:.2f}x.")
        lines += [f"The problem is degenerate: {reason}" for reason in winner.verdict.degenerate]
        head = "".join(f"# {line}\n" for line in lines)
        return head + "\n" + self.source

    def _winner(self) -> Attempt:
        if self.best is None:
            tried = len(self.history)
            raise UsageError(f"run {self.run} has no correct program ({tried} were tried)")
        return self.best
