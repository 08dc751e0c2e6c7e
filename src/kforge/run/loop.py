"""The loop on one page: propose, analyse, write, judge, profile, record.

    search.propose ──> analyst.advise ──> writer.write ──> executor.run ──> digest ──> record
         ^                (to optimise)                                                  |
         └───────────────────────────── history of attempts <────────────────────────────┘

Chains are independent and run at once; each is a function of the run's history, so a run that was broken off goes on
from its attempts alone.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from kforge.agents.base import Advice, Analyst, Draft, Situation, Target, Writer
from kforge.errors import BudgetSpent, ModelError, PromptTooLong
from kforge.execution.base import Executor, ReportAwaited
from kforge.models.base import listen_for_waits
from kforge.profilers.digest import digest
from kforge.search.base import Search
from kforge.types import (
    Attempt,
    Candidate,
    Intent,
    Job,
    Move,
    Outcome,
    Report,
    Request,
    Settings,
    Stop,
    Verdict,
)


@dataclass(frozen=True)
class ChainAgents:
    """The two agents of a chain."""

    model: str
    """What the user calls the writer."""
    writer: Writer
    analyst: Analyst | None
    """None: programs are optimised without advice."""


@dataclass(frozen=True)
class RunEvent:
    """Something happened in a chain."""

    chain: int
    step: int
    words: str
    """What is being done now."""
    attempt: Attempt | None = None
    """The attempt that was just recorded."""
    stop: Stop | None = None
    """Why the chain is over."""
    awaits: str = ""
    """What a model waits for, where it waits: the file that a reply is to be written to."""


@dataclass(frozen=True)
class RunContext:
    """Everything a run works with."""

    request: Request
    settings: Settings
    """How programs are judged, profilers included."""
    target: Target
    search: Search
    crews: tuple[ChainAgents, ...]
    executor: Executor
    record: Callable[[Attempt], None]
    """Keeps an attempt; it is safe when this returns."""
    tell: Callable[[RunEvent], None]


class Loop:
    """Drives the chains of one run to their ends."""

    def __init__(self, shop: RunContext, history: tuple[Attempt, ...] = ()) -> None:
        self.history = history
        self._shop = shop

    async def run(self) -> tuple[Stop, ...]:
        """Why each chain ended. Raises what is not a model's or a candidate's fault."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._chain(chain)) for chain in range(self._shop.request.plan.samples)]
        except BaseExceptionGroup as group_of_errors:
            raise first_of(group_of_errors) from None
        return tuple(task.result() for task in tasks)

    async def _chain(self, chain: int) -> Stop:
        try:
            stop = await self._until_stop(chain)
        except BudgetSpent as error:
            stop = Stop("budget", str(error))
        except ModelError as error:
            stop = Stop("model", str(error))
        except ReportAwaited as error:
            # The reply is kept: the same program comes to be judged again when the run is resumed.
            stop = Stop("waiting", str(error))
        self._shop.tell(RunEvent(chain, len(self._own(chain)), stop.words, stop=stop))
        return stop

    async def _until_stop(self, chain: int) -> Stop:
        while True:
            move = self._shop.search.propose(self.history, chain, self._shop.request.plan)
            if isinstance(move, Stop):
                return move
            with listen_for_waits(functools.partial(self._say_wait, move)):
                attempt = await self._attempt(move)
            if attempt is None:
                return Stop("exhausted", "nothing more to try")
            self._shop.record(attempt)
            self.history += (attempt,)
            self._shop.tell(RunEvent(chain, move.step, attempt.verdict.outcome.value, attempt))

    def _own(self, chain: int) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.history if attempt.move.chain == chain)

    async def _attempt(self, move: Move) -> Attempt | None:
        """One turn; None if the writer has nothing more to try."""
        began = time.perf_counter()
        crew = self._shop.crews[move.chain % len(self._shop.crews)]
        request = self._shop.request
        situation = Situation(
            request.problem,
            self._shop.target,
            move,
            self._own(move.chain),
            request.reference,
            request.reference_origin,
        )
        advice = await self._advice(crew, situation)
        situation = replace(situation, recommendation=advice.recommendation)
        self._say(move, "repairing" if move.intent is Intent.REPAIR else "writing")
        try:
            draft = await crew.writer.write(situation)
        except PromptTooLong as error:
            if situation.parent is None:
                # Not even the problem fits: nothing that could be tried changes that.
                raise
            draft = Draft(None, str(error))
        if draft.exhausted:
            return None
        asked = time.perf_counter()
        candidate = self._candidate(draft, situation)
        report, notes = await self._judged(move, draft, candidate)
        judged = time.perf_counter()
        usage = advice.usage + draft.usage
        parent = situation.parent
        found = digest(report.profiles, report.verdict, parent.digest if parent else None) if report.profiles else None
        attempt = Attempt(
            move=move,
            candidate=candidate,
            verdict=report.verdict,
            model=crew.model,
            recommendation=advice.recommendation,
            profiles=report.profiles,
            digest=found,
            usage=usage,
            notes=(*advice.notes, *draft.notes, *notes),
        )
        seconds = {"model": asked - began, "judge": judged - asked, "own": time.perf_counter() - judged}
        return replace(attempt, seconds={name: round(value, 4) for name, value in seconds.items()})

    async def _advice(self, crew: ChainAgents, situation: Situation) -> Advice:
        parent = situation.parent
        if situation.move.intent is not Intent.OPTIMISE or crew.analyst is None or parent is None:
            return Advice(None)
        self._say(situation.move, "analysing")
        try:
            return await crew.analyst.advise(situation)
        except PromptTooLong as error:
            return Advice(None, notes=(f"no advice: {error}",))

    async def _judged(self, move: Move, draft: Draft, candidate: Candidate | None) -> tuple[Report, tuple[str, ...]]:
        """The report on a draft; a program that was judged before is not judged again."""
        request = self._shop.request
        if candidate is None:
            verdict = Verdict(Outcome.GENERATION_FAILURE, draft.reason or "the reply holds no program")
            return Report("", request.problem.name, "", request.platform, verdict), ()
        for earlier in self.history:
            if earlier.candidate is not None and earlier.candidate.id == candidate.id:
                report = Report("", request.problem.name, candidate.id, request.platform, earlier.verdict)
                where = f"chain {earlier.move.chain + 1}, step {earlier.move.step}"
                return replace(report, profiles=earlier.profiles), (
                    f"the same program as in {where}: not judged again",
                )
        self._say(move, "judging")
        job = Job(f"{move.chain}.{move.step}", request.problem, candidate, self._shop.settings)
        return await self._shop.executor.run(job, lambda words: self._say(move, words)), ()

    def _candidate(self, draft: Draft, situation: Situation) -> Candidate | None:
        if draft.source is None:
            return None
        shown = situation.shown
        origin = shown.candidate.id if shown and shown.candidate else None
        return Candidate(draft.source, self._shop.request.platform, origin)

    def _say(self, move: Move, words: str) -> None:
        self._shop.tell(RunEvent(move.chain, move.step, words))

    def _say_wait(self, move: Move, what: str) -> None:
        self._shop.tell(RunEvent(move.chain, move.step, "waiting for a reply", awaits=what))


def first_of(error: BaseException) -> BaseException:
    """The first single error in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
