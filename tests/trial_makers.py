"""Trials for tests of what experiments come to: a problem, and how its runs went, in a line."""

from __future__ import annotations

from dataclasses import replace

from kforge.types import (
    Attempt,
    Candidate,
    Cell,
    Digest,
    Outcome,
    Signal,
    TimeLimit,
    Trial,
    TrialState,
    Usage,
    Verdict,
)
from makers import attempt, verdict

Result = float | Outcome | None
"""A speedup; the outcome of a failure; None for a correct program that was not timed."""


def trial(problem: str, *results: Result, seed: int = 0, state: TrialState = "finished", **more: object) -> Trial:
    """One chain with these results."""
    return chains(problem, results, seed=seed, state=state, **more)


def chains(
    problem: str, *results: tuple[Result, ...], seed: int = 0, state: TrialState = "finished", **more: object
) -> Trial:
    """A chain for each tuple of results; a configuration writes programs of its own, unless `program` is given."""
    configuration = str(more.pop("configuration", "a"))
    text = str(more.pop("program", configuration))
    history = tuple(
        _by(text, attempt(step, result, chain=number))
        for number, chain in enumerate(results)
        for step, result in enumerate(chain, 1)
    )
    cell = Cell(problem, f"id of {problem}", "cpu", configuration, seed)
    return Trial(cell, state=state, history=history, **more)  # type: ignore[arg-type]


def _by(text: str, made: Attempt) -> Attempt:
    """The same attempt with a program that no other `text` has."""
    candidate = made.candidate and Candidate(f"{made.candidate.source}# {text}\n")
    return replace(made, candidate=candidate)


def timed(speedup: float, vs_best: float | None, baseline: str = "eager") -> Verdict:
    """A correct verdict with both speedups as given."""
    found = verdict(speedup)
    assert found.timing is not None
    return replace(found, timing=replace(found.timing, speedup_vs_best=vs_best, baseline=baseline))


def scored(speedup: float, limit_ns: float) -> Verdict:
    """A correct verdict beside an eager that takes 100 ns, on a machine with that limit."""
    found = verdict(speedup)
    assert found.timing is not None
    limit = TimeLimit(limit_ns, "traffic: a made-up amount")
    timing = replace(found.timing, candidate_ns=(100.0 / speedup,), baseline_ns=(100.0,), limit=limit)
    return replace(found, timing=timing)


def judged(problem: str, found: Verdict, **more: object) -> Trial:
    """A trial with one attempt that has this verdict."""
    made = trial(problem, Outcome.MISMATCH, **more)  # type: ignore[arg-type]
    return replace(made, history=(replace(made.history[0], verdict=found),))


def with_digest(made: Trial, **signals: float) -> Trial:
    """The same trial, its attempts with these signals."""
    digest = Digest(tuple(Signal(name, name, value) for name, value in signals.items()))
    return replace(made, history=tuple(replace(item, digest=digest) for item in made.history))


def paid(made: Trial, tokens: int, dollars: float, unpriced: int = 0) -> Trial:
    """The same trial, at that price."""
    return replace(made, usage=Usage(1, tokens, 0, dollars, unpriced))
