"""The mean score: how much of the way from eager to the machine's limit programs make, over problems."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kforge.metrics.fast import share_of
from kforge.metrics.problem_results import any_emulated, count, is_correct
from kforge.metrics.records import Share
from kforge.types import Trial


def mean_score(trials: Sequence[Trial]) -> Share | None:
    """The mean over problems that count, 0 where the program is wrong; None where no score is known."""
    return score_share(count(trials).counting)


def score_share(counting: Mapping[str, Sequence[Trial]]) -> Share | None:
    """The same of problems that are known to count.

    A correct program without a score is left out. Where no program is correct the mean is 0, but not in emulation.
    """
    every = [trial for trials in counting.values() for trial in trials]
    if not scored(every) and (any(map(is_correct, every)) or any_emulated(every)):
        return None
    groups = [[value for trial in trials if (value := _worth(trial)) is not None] for trials in counting.values()]
    return share_of([math.fsum(group) / len(group) for group in groups if group])


def scored(trials: Sequence[Trial]) -> int:
    """How many correct programs have a score."""
    return sum(is_correct(trial) and _worth(trial) is not None for trial in trials)


def _worth(trial: Trial) -> float | None:
    if not is_correct(trial):
        return 0.0
    return trial.verdict.score if trial.verdict else None
