"""Experiments: many problems under several configurations, and how each of them went.

Experiment (problems x platforms x configurations x seeds) -> Cell -> Trial -> Study
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kforge.types.evaluation import Problem, Verdict
from kforge.types.messages import Usage
from kforge.types.run import Attempt, Budget, best_attempt

TrialState = Literal["new", "running", "stopped", "waiting", "failed", "finished"]
"""stopped: the same command goes on with it; waiting: for reports; failed: the problem or the harness is at fault."""


@dataclass(frozen=True)
class Configuration:
    """One way to forge, under a name."""

    name: str
    """What reports call it."""
    models: tuple[str, ...] = ("builtin",)
    """Who writes; several share the chains of each run."""
    options: dict[str, Any] = field(default_factory=dict)
    """Everything else by the flat names of `kforge.forge` (iterations, samples, reference, style, search, ...), and
    `profiling`: none, text or image.
    """

    def __post_init__(self) -> None:
        if not self.name or not self.models:
            raise ValueError("a configuration needs a name and a model")


@dataclass(frozen=True)
class Cell:
    """One place in an experiment's matrix."""

    problem: str
    """The problem's key in its suite: level1/23_Softmax."""
    problem_id: str
    platform: str
    configuration: str
    seed: int = 0


@dataclass(frozen=True)
class Experiment:
    """Which problems, where, in which ways. What was done of it is in the store."""

    name: str
    problems: dict[str, Problem]
    """By their keys, in order."""
    configurations: tuple[Configuration, ...]
    platforms: tuple[str, ...] = ("cpu",)
    seeds: tuple[int, ...] = (0,)
    """Each cell is forged once for each."""
    suite: str = ""
    """What the user calls the problems."""
    suite_version: str = ""
    """The commit of the folder they come from, where it has one."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Problems that a filter took away, and why."""
    notes: tuple[str, ...] = ()
    """What a reader should know: which arm of a preset could not be had here."""
    budget: Budget = Budget()
    """What all of it together may cost."""
    executor: str = "local"
    confirm: bool = True
    """Whether a winner is judged once more on fresh inputs; its figures then come from there."""
    compile_winners: bool = False
    """Whether torch.compile is built and timed when a winner is judged once more, though the loop left it out."""

    def __post_init__(self) -> None:
        names = [configuration.name for configuration in self.configurations]
        if not names or not self.problems or not self.platforms or not self.seeds:
            raise ValueError("an experiment needs problems, platforms, configurations and seeds")
        if len(set(names)) != len(names):
            raise ValueError("two configurations have the same name")

    def cells(self) -> Iterator[Cell]:
        """Every cell. A platform may need what an earlier one found, so they follow one another; what is known
        of a problem serves all of its cells there.
        """
        for platform in self.platforms:
            for key, problem in self.problems.items():
                for seed in self.seeds:
                    for configuration in self.configurations:
                        yield Cell(key, problem.id, platform, configuration.name, seed)

    def configuration(self, name: str) -> Configuration:
        return next(item for item in self.configurations if item.name == name)


@dataclass(frozen=True)
class Session:
    """One time that somebody worked on an experiment: where, and with which programs."""

    began: float
    """Seconds since 1970."""
    command: str = ""
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    """KForge's own, where it runs from a checkout; with a + where that was changed."""


@dataclass(frozen=True)
class Trial:
    """One cell, and how it went."""

    cell: Cell
    level: int | None = None
    state: TrialState = "new"
    reason: str = ""
    """Why it is in that state."""
    run: str = ""
    """The run's name in the store; empty before it has one."""
    history: tuple[Attempt, ...] = ()
    usage: Usage = Usage()
    """All of the run's model calls."""
    confirmation: Verdict | None = None
    """The verdict on the winner when it was judged once more."""
    session: int | None = None
    """Which session of its study it was last worked on in."""
    source: str = field(default="", repr=False)
    """The problem's text."""
    degenerate: tuple[str, ...] = ()
    """Why the problem is unsound, by any verdict on it on this platform in the study."""

    @property
    def best(self) -> Attempt | None:
        """The winner; None if no program was correct."""
        return best_attempt(self.history)

    @property
    def verdict(self) -> Verdict | None:
        """What counts: the winner's confirmation, else its verdict; else the last attempt's; None before any."""
        best = self.best
        if best is not None:
            return self.confirmation or best.verdict
        return self.history[-1].verdict if self.history else None

    @property
    def seconds(self) -> float:
        """The time the trial's attempts took, model and judge together."""
        return sum(sum(attempt.seconds.values()) for attempt in self.history)


@dataclass(frozen=True)
class Study:
    """Everything that a report or a comparison is made from."""

    name: str
    trials: tuple[Trial, ...] = field(repr=False)
    suite: str = ""
    suite_version: str = ""
    configurations: tuple[Configuration, ...] = ()
    sessions: tuple[Session, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def groups(self) -> dict[tuple[str, str], tuple[Trial, ...]]:
        """Trials by (platform, configuration), in the order they come in."""
        groups: dict[tuple[str, str], list[Trial]] = {}
        for trial in self.trials:
            groups.setdefault((trial.cell.platform, trial.cell.configuration), []).append(trial)
        return {key: tuple(trials) for key, trials in groups.items()}
