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
from dataclasses import replace

from kforge.agents.base import Advice, Draft, Situation
from kforge.errors import BudgetSpent, ModelError, PromptTooLong
from kforge.execution.base import ProblemCheck, ReportAwaited
from kforge.models.base import listen_for_waits
from kforge.profilers.digest import digest
from kforge.run.context import RunContext, RunEvent
from kforge.run.quiet_verdict import judge_until_quiet
from kforge.run.team import ChainAgents
from kforge.types import (
    Attempt,
    Candidate,
    Intent,
    Job,
    Move,
    Outcome,
    Report,
    Stop,
    Verdict,
    best_attempt,
)
from kforge.types.run import BUILTIN, would_win


class Loop:
    """Drives the chains of one run to their ends."""

    def __init__(self, context: RunContext, history: tuple[Attempt, ...] = ()) -> None:
        self.history = history
        self._context = context

    async def run(self) -> tuple[Stop, ...]:
        """Why each chain ended. Raises what is not a model's or a candidate's fault."""
        await self._check_problem()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_chain(chain)) for chain in range(self._context.spec.plan.samples)]
        except BaseExceptionGroup as group_of_errors:
            raise first_of(group_of_errors) from None
        return tuple(task.result() for task in tasks)

    async def _check_problem(self) -> None:
        """A problem that cannot be judged is found out before a model is paid for a program."""
        spec, executor = self._context.spec, self._context.executor
        is_free = set(spec.models) == {BUILTIN}
        if not is_free and not self.history and isinstance(executor, ProblemCheck):
            self._context.tell(RunEvent(0, 0, "checking the problem"))
            await executor.check_problem(
                spec.problem, self._context.settings, lambda words: self._context.tell(RunEvent(0, 0, words))
            )

    async def _run_chain(self, chain: int) -> Stop:
        try:
            stop = await self._until_stop(chain)
        except BudgetSpent as error:
            stop = Stop("budget", str(error))
        except ModelError as error:
            stop = Stop("model", str(error))
        except ReportAwaited as error:
            # The reply is kept: the same program comes to be judged again when the run is resumed.
            stop = Stop("waiting", str(error))
        self._context.tell(RunEvent(chain, len(self._own_attempts(chain)), stop.words, stop=stop))
        return stop

    async def _until_stop(self, chain: int) -> Stop:
        while True:
            move = self._context.search.propose(self.history, chain, self._context.spec.plan)
            if isinstance(move, Stop):
                return move
            with listen_for_waits(functools.partial(self._say_wait, move)):
                attempt = await self._attempt(move)
            if attempt is None:
                return Stop("exhausted", "nothing more to try")
            self._context.record(attempt)
            self.history += (attempt,)
            self._context.tell(RunEvent(chain, move.step, attempt.verdict.outcome.value, attempt))

    def _own_attempts(self, chain: int) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.history if attempt.move.chain == chain)

    async def _attempt(self, move: Move) -> Attempt | None:
        """One turn; None if the writer has nothing more to try."""
        began = time.perf_counter()
        agents = self._context.agents[move.chain % len(self._context.agents)]
        spec = self._context.spec
        situation = Situation(
            spec.problem,
            self._context.target,
            move,
            self._own_attempts(move.chain),
            spec.donor,
        )
        advice = await self._advice(agents, situation)
        situation = replace(situation, recommendation=advice.recommendation)
        self._say(move, "repairing" if move.intent is Intent.REPAIR else "writing")
        try:
            draft = await agents.writer.write(situation)
        except PromptTooLong as error:
            if situation.parent is None:
                # Not even the problem fits: nothing that could be tried changes that.
                raise
            draft = Draft(None, str(error))
        if draft.exhausted:
            return None
        judging_began = time.perf_counter()
        candidate = self._candidate(draft, situation)
        report, notes = await self._judge(move, draft, candidate)
        judging_ended = time.perf_counter()
        usage = advice.usage + draft.usage
        parent = situation.parent
        profile_digest = (
            digest(report.profiles, report.verdict, parent.digest if parent else None) if report.profiles else None
        )
        attempt = Attempt(
            move=move,
            candidate=candidate,
            verdict=report.verdict,
            model=agents.model,
            recommendation=draft.recommendation or advice.recommendation,
            profiles=report.profiles,
            digest=profile_digest,
            usage=usage,
            notes=(*advice.notes, *draft.notes, *notes),
            judging=report.seconds,
        )
        # Replies from before a break, and reports from another machine, took what they took there.
        there = sum(report.seconds.get(part, 0.0) for part in ("verdict", "profiles"))
        seconds = {
            "model": max(judging_began - began, advice.seconds + draft.seconds),
            "judge": max(judging_ended - judging_began, there),
            "own": time.perf_counter() - judging_ended,
        }
        return replace(attempt, seconds={name: round(value, 4) for name, value in seconds.items()})

    async def _advice(self, agents: ChainAgents, situation: Situation) -> Advice:
        parent = situation.parent
        if situation.move.intent is not Intent.OPTIMISE or agents.analyst is None or parent is None:
            return Advice(None)
        self._say(situation.move, "analysing")
        try:
            return await agents.analyst.advise(situation)
        except PromptTooLong as error:
            return Advice(None, notes=(f"no advice: {error}",))

    async def _judge(self, move: Move, draft: Draft, candidate: Candidate | None) -> tuple[Report, tuple[str, ...]]:
        """The report on a draft; a program that was judged before is not judged again."""
        spec = self._context.spec
        if candidate is None:
            verdict = Verdict(Outcome.GENERATION_FAILURE, draft.reason or "the reply holds no program")
            return Report("", spec.problem.name, "", spec.platform, verdict), ()
        for earlier in self.history:
            if earlier.candidate is not None and earlier.candidate.id == candidate.id:
                report = Report("", spec.problem.name, candidate.id, spec.platform, earlier.verdict)
                where = f"chain {earlier.move.chain + 1}, step {earlier.move.step}"
                return replace(report, profiles=earlier.profiles), (
                    f"the same program as in {where}: not judged again",
                )
        self._say(move, "judging")
        job = Job(
            f"{move.chain}.{move.step}",
            spec.problem,
            candidate,
            self._context.settings,
            self._least_to_profile(move.chain),
        )
        tell = functools.partial(self._say, move)
        report = await self._context.executor.run(job, tell)
        if not would_win(report.verdict, self.history):
            return report, ()
        return await judge_until_quiet(self._context.executor, job, report, tell)

    def _least_to_profile(self, chain: int) -> float:
        """The speedup from which on the next move starts from a program, and an analyst reads its profile."""
        best = best_attempt(self._own_attempts(chain))
        starts_from_best = getattr(self._context.search, "starts_from_best", False)
        return best.sure_speedup if best is not None and starts_from_best else 0.0

    def _candidate(self, draft: Draft, situation: Situation) -> Candidate | None:
        if draft.source is None:
            return None
        shown = situation.shown_attempt
        origin = shown.candidate.id if shown and shown.candidate else None
        return Candidate(draft.source, self._context.spec.platform, origin)

    def _say(self, move: Move, message: str) -> None:
        self._context.tell(RunEvent(move.chain, move.step, message))

    def _say_wait(self, move: Move, what: str) -> None:
        self._context.tell(RunEvent(move.chain, move.step, "waiting for a reply", awaits=what))


def first_of(error: BaseException) -> BaseException:
    """The first single error in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
