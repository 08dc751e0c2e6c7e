"""Values for tests of the loop: attempts, verdicts, situations, without anything being run."""

from __future__ import annotations

import math
from dataclasses import replace

from kforge.agents.base import Situation, Target
from kforge.types import (
    Attempt,
    Candidate,
    ErrorNorm,
    Evidence,
    Intent,
    Move,
    Outcome,
    Problem,
    Recommendation,
    Settings,
    Timing,
    Verdict,
    WorkloadResult,
)

TARGET = Target("cpu", "# The platform\nWrite C++.", ("class Model:\n    pass\n", "class ModelNew:\n    pass\n"))


def verdict(speedup: float | None = None, outcome: Outcome = Outcome.CORRECT, detail: str = "as measured") -> Verdict:
    """A verdict: correct with that speedup, or another outcome."""
    if outcome is not Outcome.CORRECT:
        return Verdict(outcome, detail, rule="patched_torch" if outcome is Outcome.REJECTED else "")
    errors = (ErrorNorm("natural", 1e-7, 1e-5, 0.1),)
    if speedup is None:
        return Verdict(outcome, detail, errors=errors)
    timing = Timing("eager", speedup, (speedup * 0.98, speedup * 1.02), speedup * 0.8, (1.0,), (speedup,), 5, 3)
    return Verdict(outcome, detail, errors=errors, timing=timing)


def evidence(host: str = "", identity: str = "") -> Evidence:
    """What a verdict stands on, with nothing in it but which host of a cluster judged, and on which device."""
    empty: tuple[str, ...] = ()
    problem, settings = Problem("p", "class Model: ..."), Settings()
    seen = (empty,) * 5
    return Evidence(problem, Candidate(program()), settings, {}, {}, *seen, {}, host=host, identity=identity)


def contended(speedup: float) -> Verdict:
    """A verdict on a correct program that was timed while others used half of the machine."""
    quiet = verdict(speedup)
    assert quiet.timing is not None
    return replace(quiet, timing=replace(quiet.timing, contended=0.5))


def by_workload(speedups: dict[str, float], detail: str = "as measured") -> Verdict:
    """A verdict on a correct program: its speedup on each workload, which weigh the same, and their geometric mean."""
    results = tuple(
        WorkloadResult(name, 1 / len(speedups), 3, verdict(value).timing, 0.9 - 0.1 * number)
        for number, (name, value) in enumerate(speedups.items())
    )
    mean = math.prod(speedups.values()) ** (1 / len(speedups))
    return replace(verdict(mean, detail=detail), workloads=results)


def program(text: str = "x") -> str:
    return f"import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return {text}\n"


def reply(text: str = "x") -> str:
    return f"```python\n{program(text)}```\n"


def attempt(
    step: int,
    result: float | Outcome | None,
    intent: Intent = Intent.FRESH,
    parent: int | None = None,
    chain: int = 0,
    advice: str = "",
) -> Attempt:
    """An attempt whose result is a speedup, or the outcome it failed with."""
    found = verdict(outcome=result) if isinstance(result, Outcome) else verdict(result)
    return Attempt(
        Move(chain, step, intent, parent),
        None if result is Outcome.GENERATION_FAILURE else Candidate(program(f"x + {chain}.{step}")),
        found,
        recommendation=Recommendation(advice, "a fact") if advice else None,
    )


def situation(problem: Problem, move: Move | None = None, past: tuple[Attempt, ...] = ()) -> Situation:
    return Situation(problem, TARGET, move or Move(0, 1, Intent.FRESH), past)
