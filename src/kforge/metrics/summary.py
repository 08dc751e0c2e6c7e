"""One configuration on one platform, in figures. Their definitions are in docs/metrics.md."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kforge.metrics.fast import curve, share_of
from kforge.metrics.first_programs import after
from kforge.metrics.intervals import mean_interval
from kforge.metrics.per_iteration import iterations, pass_at
from kforge.metrics.problem_results import (
    Counted,
    ProblemResult,
    any_emulated,
    count,
    is_correct,
    problem_result,
    speedup,
    state,
)
from kforge.metrics.records import AGAINST, STATES, Against, Iteration, Mean, Summary
from kforge.metrics.score import score_share, scored
from kforge.types import Trial, Usage

OWN_CODE = 0.95
"""From this share of time on, a program is its own code only: what is left is mostly asking for memory."""
_FARTHEST = math.log(1e6)
"""An interval in logarithms is cut off here, so that two wild values give a number that can be written."""


def summarise(trials: Sequence[Trial]) -> Summary:
    """The figures of the trials of one (platform, configuration); without trials an empty summary."""
    counted = count(trials)
    results = [problem_result(group) for group in counted.counting.values()]
    timed = any(result.logs for result in results)
    ended = Counter(state(trial) for trial in counted.trials)
    summary = Summary(
        platform=trials[0].cell.platform if trials else "",
        configuration=trials[0].cell.configuration if trials else "",
        problems=tuple(counted.counting),
        unfinished=counted.unfinished,
        unusable=counted.unusable,
        degenerate=counted.degenerate,
        partial=counted.partial,
        unconfirmed=_failed_confirmations(counted.trials),
        emulated=any_emulated(trials),
        timed=timed,
        outcomes={name: ended[name] for name in STATES if ended[name]},
        correct=share_of([result.correct for result in results]),
        iterations=tuple(_with_speeds(item, counted) for item in iterations(counted.trials)),
        fast={against: points for against in AGAINST if (points := curve(counted.counting, against))},
        untimed=_untimed_counts(counted.trials) if timed else {},
        mean_correct=_means_correct(results),
        mean_fallback=_means_fallback(results),
        pass_at=pass_at(counted.counting),
        score=score_share(counted.counting),
        scored=scored(counted.trials),
    )
    return _with_winner_figures(_with_costs(summary, trials), counted)


def _with_speeds(iteration: Iteration, counted: Counted) -> Iteration:
    """The iteration with what somebody has who stops then."""
    stopped = {
        key: tuple(replace(trial, confirmation=None) for trial in after(trials, iteration.number))
        for key, trials in counted.counting.items()
    }
    results = [problem_result(trials) for trials in stopped.values()]
    return replace(
        iteration,
        correct=share_of([result.correct for result in results]),
        fast={against: points for against in AGAINST if (points := curve(stopped, against))},
        mean_correct=_means_correct(results),
    )


def _failed_confirmations(trials: Iterable[Trial]) -> dict[str, str]:
    """By problem, the confirmations that were not correct."""
    by_problem: dict[str, list[str]] = {}
    for trial in trials:
        if trial.best is not None and trial.confirmation is not None and not is_correct(trial):
            verdict = trial.confirmation
            by_problem.setdefault(trial.cell.problem, []).append(f"{verdict.outcome.value}: {verdict.headline}")
    return {key: "; ".join(dict.fromkeys(reasons)) for key, reasons in by_problem.items()}


def _untimed_counts(trials: Sequence[Trial]) -> dict[str, int]:
    correct = [trial for trial in trials if is_correct(trial)]
    missing = {against: sum(speedup(trial, against) is None for trial in correct) for against in AGAINST}
    return {against: number for against, number in missing.items() if number}


def _means_correct(results: Sequence[ProblemResult]) -> dict[str, Mean]:
    known = {against: [result.logs[against] for result in results if against in result.logs] for against in AGAINST}
    return {against: _mean(logs) for against, logs in known.items() if logs}


def _means_fallback(results: Sequence[ProblemResult]) -> dict[str, Mean]:
    known: Sequence[Against] = [against for against in AGAINST if any(against in result.logs for result in results)]
    if results and not any(result.correct or result.emulated for result in results):
        # Without a correct program the baseline is kept everywhere.
        known = AGAINST
    return {against: _mean([result.fallback[against] for result in results], least=0.0) for against in known}


def _mean(logs: Sequence[float], least: float = -_FARTHEST) -> Mean:
    """A geometric mean from logarithms, none of which can be less than `least`."""
    low, high = mean_interval(logs)
    value = math.fsum(logs) / len(logs)
    return Mean(math.exp(value), math.exp(max(least, low)), math.exp(min(_FARTHEST, high)), len(logs))


def _with_costs(summary: Summary, trials: Sequence[Trial]) -> Summary:
    """The summary with what everything cost, and how much that is for each correct program."""
    usage = sum((trial.usage for trial in trials), Usage())
    usage = replace(usage, dollars=math.fsum(trial.usage.dollars for trial in trials))
    seconds = math.fsum(trial.seconds for trial in trials)
    correct = sum(is_correct(trial) for trial in trials if trial.cell.problem not in summary.degenerate)
    return replace(
        summary,
        usage=usage,
        seconds=seconds,
        correct_kernels=correct,
        tokens_per_correct=usage.tokens / correct if correct else None,
        dollars_per_correct=usage.dollars / correct if correct and not usage.unpriced else None,
        seconds_per_correct=seconds / correct if correct else None,
    )


def _with_winner_figures(summary: Summary, counted: Counted) -> Summary:
    """The summary with whose code the winners spend their time in, and how near the machine's ceiling they come."""
    own: list[float] = []
    own_only: list[float] = []
    roofline: list[float] = []
    for trials in counted.counting.values():
        winners = [trial for trial in trials if is_correct(trial)]
        verdicts = [trial.verdict for trial in winners if trial.verdict]
        shares = [verdict.custom_share for verdict in verdicts if verdict.custom_share is not None]
        own += shares
        if shares:
            own_only.append(sum(share >= OWN_CODE for share in shares) / len(shares))
        digests = [trial.best.digest for trial in winners if trial.best and trial.best.digest]
        roofline += [share for digest in digests if (share := digest.value("roofline_share")) is not None]
    return replace(
        summary,
        custom_share=statistics.median(own) if own else None,
        own_code_only=share_of(own_only),
        roofline_share=statistics.median(roofline) if roofline else None,
        roofline_of=len(roofline),
    )
