"""What more programs, and more independent tries, are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kforge.metrics.problem_results import chains
from kforge.metrics.records import STATES, Iteration
from kforge.types import Attempt, Trial

_KS = (1, 2, 5, 10, 20, 50, 100)


def iterations(trials: Sequence[Trial]) -> tuple[Iteration, ...]:
    """How the chains of these trials stood after one program each, after two, and so on."""
    all_chains = [[_place(attempt) for attempt in chain] for trial in trials for chain in chains(trial)]
    longest = max(map(len, all_chains), default=0)
    return tuple(_iteration(number, all_chains) for number in range(1, longest + 1))


def _iteration(number: int, all_chains: Sequence[Sequence[int]]) -> Iteration:
    reached = [0] * len(STATES)
    own = [0] * len(STATES)
    for chain in all_chains:
        # A chain without a program has come to nothing, which is the worst state.
        reached[max(chain[:number], default=0)] += 1
        if len(chain) >= number:
            own[chain[number - 1]] += 1
    shares = {state: count / len(all_chains) for state, count in zip(STATES, reached, strict=True)}
    return Iteration(number, shares, dict(zip(STATES, own, strict=True)))


def pass_at(counting: Mapping[str, Sequence[Trial]]) -> dict[int, float]:
    """pass@k over problems, for k up to the fewest chains that any problem has."""
    tries = [_pass_counts(trials) for trials in counting.values()]
    fewest = min((count for count, _ in tries), default=0)
    return {k: math.fsum(pass_at_k(n, c, k) for n, c in tries) / len(tries) for k in _KS if k <= fewest}


def pass_at_k(tried: int, passed: int, k: int) -> float:
    """The chance that k of `tried` tries, drawn without putting back, hold one that passed (Chen et al. 2021)."""
    return 1.0 - math.comb(tried - passed, k) / math.comb(tried, k)


def _pass_counts(trials: Sequence[Trial]) -> tuple[int, int]:
    """Chains of a problem, and those with a correct program."""
    every = [chain for trial in trials for chain in chains(trial)]
    return len(every), sum(any(attempt.correct for attempt in chain) for chain in every)


def _place(attempt: Attempt) -> int:
    return STATES.index(attempt.verdict.outcome.value)
