"""Which problems count, and what each of them came to on one side.

A problem counts if it is sound and at least one of its trials is finished. What a trial is worth is `Trial.verdict`:
the winner's confirmation where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kforge.metrics.records import AGAINST, STATES, Against
from kforge.types import Attempt, Outcome, Trial, Verdict


@dataclass(frozen=True)
class Counted:
    """The trials of one configuration on one platform, sorted out by problem."""

    counting: dict[str, tuple[Trial, ...]]
    """Finished trials of problems that count, by key, in the order of the keys."""
    unfinished: dict[str, str] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    degenerate: dict[str, str] = field(default_factory=dict)
    partial: dict[str, str] = field(default_factory=dict)
    """Problems that count, some of whose trials are not through."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials that count."""
        return tuple(trial for trials in self.counting.values() for trial in trials)


@dataclass(frozen=True)
class ProblemResult:
    """One problem's figures, over its repetitions."""

    correct: float
    """The share of repetitions that are correct."""
    state: str
    """The best state of any repetition."""
    logs: dict[Against, float]
    """Mean logarithm of the speedup of correct repetitions, where one was timed against that baseline."""
    fallback: dict[Against, float]
    """Mean logarithm of the speedup over all repetitions, the baseline kept where the program is wrong or slower."""
    emulated: bool = False
    """Whether any of them was judged in emulation, where nothing is timed."""
    programs: dict[str, float] = field(default_factory=dict)
    """The winners of correct repetitions, by id, and how large a share of those each of them won."""


def count(trials: Sequence[Trial]) -> Counted:
    """Sort trials by what became of their problems; ValueError if they are of several configurations or platforms."""
    if len({(trial.cell.platform, trial.cell.configuration) for trial in trials}) > 1:
        raise ValueError("trials of several platforms or configurations: give those of one, as Study.groups() does")
    counted = Counted({})
    for key, group in _by_problem(trials).items():
        unsound = _unique(reason for trial in group for reason in flaws(trial))
        finished = tuple(trial for trial in group if trial.state == "finished")
        others = [trial for trial in group if trial.state != "finished"]
        why = "; ".join(_unique(f"{trial.state}: {trial.reason}" if trial.reason else trial.state for trial in others))
        if unsound:
            counted.degenerate[key] = "; ".join(unsound)
        elif finished:
            counted.counting[key] = finished
            if why:
                counted.partial[key] = why
        elif all(trial.state == "failed" for trial in others):
            counted.unusable[key] = "; ".join(_unique(trial.reason or "failed" for trial in others))
        else:
            counted.unfinished[key] = why
    return counted


def problem_result(trials: Sequence[Trial]) -> ProblemResult:
    """The figures of one problem's finished trials."""
    correct = [trial for trial in trials if is_correct(trial)]
    logs: dict[Against, float] = {}
    fallback: dict[Against, float] = {}
    for against in AGAINST:
        known = [math.log(value) for trial in correct if (value := speedup(trial, against)) is not None]
        if known:
            logs[against] = math.fsum(known) / len(known)
        fallback[against] = math.fsum(max(0.0, value) for value in known) / len(trials)
    best = max((state(trial) for trial in trials), key=STATES.index)
    return ProblemResult(len(correct) / len(trials), best, logs, fallback, any_emulated(trials), _programs(correct))


def flaws(trial: Trial) -> list[str]:
    """Why a trial's problem is unsound: by its own verdicts, or by those of other trials on the same problem."""
    return _unique((*trial.degenerate, *(reason for verdict in _verdicts(trial) for reason in verdict.degenerate)))


def any_emulated(trials: Iterable[Trial]) -> bool:
    """Whether any program was judged in emulation."""
    return any(attempt.verdict.emulated for trial in trials for attempt in trial.history)


def state(trial: Trial) -> str:
    """How a trial ended; one that never had a program is a failure to generate one."""
    return trial.verdict.outcome.value if trial.verdict else Outcome.GENERATION_FAILURE.value


def is_correct(trial: Trial) -> bool:
    return trial.verdict is not None and trial.verdict.outcome is Outcome.CORRECT


def speedup(trial: Trial, against: Against) -> float | None:
    """The winner's speedup; None where it is not correct or was not timed against that baseline."""
    timing = trial.verdict.timing if trial.verdict else None
    if timing is None:
        return None
    if against == "best":
        return timing.speedup_vs_best
    return timing.against_eager.value if timing.against_eager else None


def chains(trial: Trial) -> list[list[Attempt]]:
    """A trial's attempts by chain, in the order of their steps; a trial without a program has one empty chain."""
    by_chain: dict[int, list[Attempt]] = {}
    for attempt in sorted(trial.history, key=lambda item: item.move.step):
        by_chain.setdefault(attempt.move.chain, []).append(attempt)
    return [by_chain[number] for number in sorted(by_chain)] or [[]]


def _programs(correct: Sequence[Trial]) -> dict[str, float]:
    """Programs by id with their shares; a text for one platform is another program than the same for another."""
    winners = [
        f"{trial.cell.platform}:{trial.best.candidate.id}" for trial in correct if trial.best and trial.best.candidate
    ]
    return {winner: winners.count(winner) / len(winners) for winner in sorted(winners)}


def _by_problem(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Trials by problem, in an order that does not depend on how they came, so that neither does any figure."""
    groups: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda item: (item.cell.problem, item.cell.seed, item.run)):
        groups.setdefault(trial.cell.problem, []).append(trial)
    return groups


def _verdicts(trial: Trial) -> Iterable[Verdict]:
    yield from (attempt.verdict for attempt in trial.history)
    if trial.confirmation is not None:
        yield trial.confirmation


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
