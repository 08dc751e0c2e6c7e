"""Trials as they stood after so many programs: a single shot, and what more of them were worth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kforge.metrics.problem_results import chains
from kforge.types import Trial, best_attempt


def after(trials: Iterable[Trial], programs: int) -> tuple[Trial, ...]:
    """The trials with the first `programs` of every chain only, and a confirmation only of a winner that is among them.

    Whatever came that far is finished, though the whole may not be.
    """
    return tuple(_after(trial, programs) for trial in trials)


def _after(trial: Trial, programs: int) -> Trial:
    if trial.state != "finished" and any(len(chain) < programs for chain in chains(trial)):
        return trial
    history = tuple(attempt for attempt in trial.history if attempt.move.step <= programs)
    same_winner = best_attempt(history) == trial.best
    return replace(
        trial,
        state="finished",
        reason=trial.reason if trial.state == "finished" else "",
        history=history,
        confirmation=trial.confirmation if same_winner else None,
    )
