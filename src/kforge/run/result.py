"""What a run came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kforge.errors import UsageError
from kforge.run import eager_comparison, guarded_program
from kforge.types import Attempt, RunSpec, Stop, Usage, Verdict, best_attempt
from kforge.whole_file import write_for_user


@dataclass(frozen=True)
class RunResult:
    """A run's history, and the best correct program in it."""

    run: str
    """The run's name in the store."""
    spec: RunSpec
    history: tuple[Attempt, ...]
    """Every attempt, in the order they were recorded."""
    stops: tuple[Stop, ...] = ()
    """Why each chain ended; empty for a run read back from the store."""
    usage: Usage = Usage()
    """What the run's model calls cost, those that led to no attempt included."""

    def __repr__(self) -> str:
        best = f"best {self.best.verdict.timing or 'not timed'}" if self.best else "no correct program"
        attempts = f"{len(self.history)} attempt{'' if len(self.history) == 1 else 's'}"
        task = f"{self.spec.problem.key} on {self.spec.platform}"
        return f"<{type(self).__name__} {task}: {best}, {attempts}, run {self.run}>"

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
        """The judge's verdict on the best program."""
        return self.best.verdict if self.best else None

    def save(self, path: str | Path) -> Path:
        """Write the best program to a file, with a comment that says where it comes from."""
        target = Path(path)
        write_for_user(target, self.annotated_source())
        return target

    def annotated_source(self, attempt: Attempt | None = None) -> str:
        """A program as it is handed over: under a comment that says where it comes from and what was measured.

        The best one, or another attempt's. What is correct carries a guard that keeps it to what it was verified for;
        what is not says so, and is left as it is.
        """
        winner = attempt or self._winner()
        assert winner.candidate is not None
        problem, timing = self.spec.problem, winner.verdict.timing
        lines = [
            f"Forged by KForge for {problem.name} (problem {problem.id}) on platform {self.spec.platform}.",
            f"Written by {winner.model}, run {self.run}, step {winner.move.step}.",
            winner.verdict.headline,
        ]
        if timing is not None and timing.speedup_vs_best is not None:
            lines.append(f"Against the best baseline: {timing.speedup_vs_best:.2f}x.")
        timed = ((item.workload, item.timing) for item in winner.verdict.workloads)
        lines += [f"On {name}: {timing}." for name, timing in timed if timing is not None]
        warning = eager_comparison.advice(winner.verdict)
        lines += [f"Beware: {warning}."] if warning else []
        lines += [f"The problem is degenerate: {reason}" for reason in winner.verdict.degenerate]
        if not winner.correct:
            lines.append(f"NOT CORRECT ({winner.verdict.outcome.value}): to be read, not to be used.")
            return _add_comment(lines, winner.candidate.source)
        lines += guarded_program.domain_lines(winner.verdict.domain)
        return _add_comment(
            lines, guarded_program.add_guard(winner.candidate.source, problem.name, winner.verdict.domain)
        )

    @property
    def guarded_source(self) -> str:
        """The best correct program with its guard; UsageError if there is none."""
        return guarded_program.add_guard(self.source, self.spec.problem.name, self._winner().verdict.domain)

    def warn_unless_faster(self, stacklevel: int = 1) -> None:
        """A NotFasterWarning where the best program is not surely faster than eager."""
        eager_comparison.warn_unless_faster(self.spec.problem.name, self._winner().verdict, stacklevel + 1)

    def _winner(self) -> Attempt:
        if self.best is None:
            tried = len(self.history)
            raise UsageError(f"run {self.run} has no correct program ({tried} were tried)")
        return self.best


def _add_comment(lines: list[str], source: str) -> str:
    """A text under a comment; no line of what is quoted ends the comment."""
    return "".join(f"# {' '.join(line.split())}\n" for line in lines) + "\n" + source
