"""What a run is made of: what was asked, which move came next, and how each attempt went."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal

from kforge.types.evaluation import Candidate, Outcome, Problem, Profile, Settings, Verdict
from kforge.types.messages import ModelSettings, Usage

BUILTIN = "builtin"
"""The name of the offline agents, in place of a model's."""
NO_ANALYST = "none"
"""In place of an analyst's model: nobody reads profiles."""


@dataclass(frozen=True)
class Plan:
    """How a search may go on."""

    iterations: int = 5
    """Programs per chain at most."""
    samples: int = 1
    """Independent chains."""
    target_speedup: float | None = None
    """Stop when the best correct program is surely this fast: the lower end of its interval reaches it."""
    repairs: int = 2
    """Failed repairs in a row before going back to the best correct program, or to a fresh start."""
    plateau: int = 3
    """Stop a chain after this many correct programs in a row that were no gain."""
    minimum_gain: float = 0.02
    """What counts as a gain: this share faster than the best so far, by the lower ends of the intervals."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.samples < 1:
            raise ValueError("iterations and samples must be at least 1")
        if self.repairs < 1 or self.plateau < 1:
            raise ValueError("repairs and plateau must be at least 1")
        if self.target_speedup is not None and self.target_speedup <= 0:
            raise ValueError("target_speedup must be positive")


@dataclass(frozen=True)
class Budget:
    """What a run may spend on models; None is no limit."""

    dollars: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if (self.dollars is not None and self.dollars < 0) or (self.tokens is not None and self.tokens < 0):
            raise ValueError("a budget cannot be negative")

    def after(self, usage: Usage) -> Budget:
        """What is left of the budget."""
        return Budget(
            None if self.dollars is None else max(0.0, self.dollars - usage.dollars),
            None if self.tokens is None else max(0, self.tokens - usage.tokens),
        )


@dataclass(frozen=True)
class Donor:
    """A program from elsewhere that a writer may learn from: of another platform, a file, PyTorch's compiler."""

    source: str
    """The program, whole."""
    origin: str = ""
    """Where it comes from, as kforge.agents.donor_origin reads it: store:cuda:RUN:1.3, file:cuda:k.cu, inductor:cpu."""

    def __repr__(self) -> str:
        return f"<Donor {self.origin or 'of unknown origin'}, {len(self.source.splitlines())} lines>"


@dataclass(frozen=True)
class RunSpec:
    """Everything a run is asked to do: it can be begun from this alone, and resumed from this and its attempts.

    Where a run works (its store, a cache, who is told) is not part of it: see kforge.RunEnvironment.
    """

    problem: Problem
    platform: str = "cpu"
    models: tuple[str, ...] = ("builtin",)
    """Who writes programs; chain i uses the i-th, round and round."""
    analyst_model: str = ""
    """Who reads profiles; empty: each chain's own model; "none": nobody."""
    reference: str = ""
    """Which donor is wanted: a file's path, a program's text, a platform's name (its best correct program for the
    problem in the store), or "inductor".
    """
    donor: Donor | None = None
    """The donor itself, once it is found: a resumed run keeps it, even if there is a better one by then."""
    style: str = "structured"
    """The prompt style: structured, plain, or a folder in `prompts`."""
    prompts: str = ""
    """A folder whose templates come before the built-in ones."""
    prompt_tokens: int = 24_000
    """No prompt is longer than this."""
    profilers: tuple[str, ...] | None = None
    """Which profilers to use; None: the platform's own, empty: none."""
    search: str = "refine"
    """How the next move is chosen."""
    plan: Plan = Plan()
    """Iterations, samples, target, when to give up."""
    settings: Settings = Settings()
    """How each program is judged."""
    model_settings: ModelSettings = ModelSettings()
    """How models are asked."""
    budget: Budget = Budget()
    """What models may cost."""
    keep_prompts: bool = False
    """Whether the text of prompts is kept in the store; otherwise only its hash."""
    executor: str = "local"
    """Who judges: local, this machine; bundle:DIR, a folder that is carried to another; dask:ADDRESS, a cluster."""

    def __repr__(self) -> str:
        return f"<RunSpec for {self.problem!r} on {self.platform} by {', '.join(self.models)}>"


class Intent(enum.Enum):
    """What the next program is to be."""

    FRESH = "fresh"
    """Written from the problem alone."""
    REPAIR = "repair"
    """The last program, its fault mended."""
    OPTIMISE = "optimise"
    """A correct program, made faster."""


@dataclass(frozen=True)
class Move:
    """The next thing to try in a chain."""

    chain: int
    step: int
    """Its place in the chain, from 1."""
    intent: Intent
    parent: int | None = None
    """The step of the program it starts from; None for a fresh one."""


@dataclass(frozen=True)
class Stop:
    """A chain is over."""

    reason: Literal["iterations", "target", "plateau", "exhausted", "budget", "model", "waiting", "emulated"]
    """exhausted: the writer has nothing more to try; model: it could not be asked; waiting: for a report."""
    words: str = ""

    @property
    def final(self) -> bool:
        """Whether nothing is left to do: a budget can be raised, a silent model mended, a report carried here, and the
        run resumed.
        """
        return self.reason not in ("budget", "model", "waiting")


@dataclass(frozen=True)
class Signal:
    """One fact of a profile that matters."""

    name: str
    words: str
    """The fact in a sentence."""
    value: float | None = None
    change: str = ""
    """How it differs from the previous attempt; empty where there is nothing to compare."""


@dataclass(frozen=True)
class Digest:
    """A profile cut down to the few signals that matter."""

    signals: tuple[Signal, ...] = ()

    def value(self, name: str) -> float | None:
        """The number of the signal called `name`, if there is one."""
        return next((signal.value for signal in self.signals if signal.name == name), None)

    @property
    def text(self) -> str:
        """A line for each signal."""
        return "\n".join(
            f"- {signal.words}" + (f" [{signal.change}]" if signal.change else "") for signal in self.signals
        )


@dataclass(frozen=True)
class Recommendation:
    """The one change to make next."""

    text: str
    evidence: str = ""
    """What in the profile it rests on."""
    action: str = ""
    """For the offline writer: the variant to lift next. Models leave it empty."""


@dataclass(frozen=True)
class Attempt:
    """One turn of the loop, and the only record of it."""

    move: Move
    candidate: Candidate | None
    """None where the reply held no program."""
    verdict: Verdict
    model: str = ""
    """Who wrote it."""
    recommendation: Recommendation | None = None
    """The change that was to be made, or that the offline writer made in its place."""
    profiles: tuple[Profile, ...] = ()
    digest: Digest | None = None
    usage: Usage = Usage()
    """What its model calls cost, the analyst's included."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Where its time went: model, judge, own. Of what was answered before a break, or judged on another machine, what
    it took then or there.
    """
    judging: dict[str, float] = field(default_factory=dict)
    """What judging it took where it was done: `Report.seconds`. The phases of the verdict are in its evidence."""
    notes: tuple[str, ...] = ()
    """What a reader should know: how the program was found in the reply, which earlier one it equals."""

    def __post_init__(self) -> None:
        if self.candidate is None and self.verdict.outcome is not Outcome.GENERATION_FAILURE:
            raise ValueError("without a program the only outcome is generation_failure")

    def __repr__(self) -> str:
        return f"<Attempt {self.move.chain + 1}.{self.move.step} {self.move.intent.value}: {self.verdict!r}>"

    @property
    def correct(self) -> bool:
        return self.verdict.outcome is Outcome.CORRECT

    @property
    def unchanged(self) -> bool:
        """Whether the writer gave back the program it was shown: what was advised has not been tried."""
        return self.candidate is not None and self.candidate.id == self.candidate.parent

    @property
    def speedup(self) -> float | None:
        """The speedup over the named baseline; None where it was not timed."""
        return self.verdict.speedup

    @property
    def sure_speedup(self) -> float:
        """The lower end of the speedup's interval; 0 where it was not timed, or beside others' work (contended).

        Programs are compared by it: of several noisy measurements the highest middle is the luckiest, not the best.
        """
        return self.verdict.interval[0] if self.verdict.interval and not self.verdict.contended else 0.0


def best_attempt(attempts: tuple[Attempt, ...]) -> Attempt | None:
    """The correct attempt that is surely the fastest; where nothing is sure, the one that seems to be; of equals, or
    where none was timed, the first.
    """
    correct = [attempt for attempt in attempts if attempt.correct]
    return max(correct, key=lambda attempt: (attempt.sure_speedup, attempt.speedup or 0.0), default=None)


def contended_rivals(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """Correct attempts that seem faster than the best one and were timed beside others' work, so that they may not be.

    Empty where the best one was timed so too: then it is the one that seems the fastest.
    """
    best = best_attempt(attempts)
    if best is None or best.verdict.contended:
        return ()
    return tuple(
        attempt
        for attempt in attempts
        if attempt.correct and attempt.verdict.contended and (attempt.speedup or 0.0) > (best.speedup or 0.0)
    )


def would_win(verdict: Verdict, attempts: tuple[Attempt, ...]) -> bool:
    """Whether a verdict, taken at its word, is on the best program so far."""
    best = best_attempt(attempts)
    low = verdict.interval[0] if verdict.interval else 0.0
    return verdict.outcome is Outcome.CORRECT and (best is None or low > best.sure_speedup)
