"""`kforge.forge`: from a problem to a faster drop-in; `kforge.resume`: the same for a run that was broken off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kforge import registry
from kforge.agents.offline.factory import check_offline
from kforge.errors import StoreError, UsageError
from kforge.execution.base import Executor
from kforge.execution.executor_names import whole_name
from kforge.execution.factory import open_executor
from kforge.models.rate_limit import Limited
from kforge.run import drop_in
from kforge.run.journal import RunJournal
from kforge.run.loop import Loop, RunContext, RunEvent
from kforge.run.result import RunResult
from kforge.run.team import BUILTIN, ModelAccess, RunAgents, open_models, open_staff
from kforge.spec.run_spec import check_platform, judging_platform, make_request, named_options, target_of
from kforge.store.store import Store
from kforge.types import Problem, Request, Settings, Stop

Tell = Callable[[RunEvent], None]


@dataclass(frozen=True, repr=False)
class ForgeResult(RunResult):
    """A result that can be put to use in this process."""

    def module(self, weights: torch.nn.Module | None = None) -> torch.nn.Module:
        """The best program as a drop-in nn.Module. It runs generated code here, outside any sandbox.

        With `weights`, an instance of the reference module, it takes over its parameters, buffers and mode; for a
        problem made from a live module it takes them from there by itself. It is for inference, in calls like those it
        was verified in; any other (gradients, tracers, other dtypes or shapes) raises an error that says so. A
        NotFasterWarning says so where it is not surely faster than eager.
        """
        self.warn_unless_faster(stacklevel=2)
        target = target_of(self.request.platform, self.request.executor)
        return drop_in.load(self.request.problem, self.guarded_source, target.device_class, weights)


@dataclass(frozen=True)
class RunEnvironment:
    """Where a run works: none of it changes what is asked or how it is judged."""

    store: str | Store = ""
    """A folder or a database URL, or a store that is open already; empty: .kforge in the current folder."""
    means: ModelAccess = ModelAccess()
    tell: Tell = lambda _: None
    """Told what happens, as it happens."""
    started: Callable[[str], None] = lambda _: None
    """Told the run's name when it has one."""
    executor: Executor | None = None
    """Who judges; None: whom the request names, for this run alone."""


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class ResumeOptions:
    """What a resumed run may do beyond what it was asked for at first; None leaves it as it was."""

    iterations: int | None = None
    plateau: int | None = None
    target_speedup: float | None = None
    prompt_tokens: int | None = None
    budget: float | None = None
    """Dollars in all, what was spent before included."""
    budget_tokens: int | None = None
    executor: str | None = None
    """Who judges from now on: local, or bundle:DIR."""

    def applied(self, request: Request) -> Request:
        """The request with these changes."""
        plan = _given(iterations=self.iterations, plateau=self.plateau, target_speedup=self.target_speedup)
        budget = _given(dollars=self.budget, tokens=self.budget_tokens)
        try:
            return replace(
                request,
                plan=replace(request.plan, **plan),
                budget=replace(request.budget, **budget),
                prompt_tokens=self.prompt_tokens or request.prompt_tokens,
                executor=whole_name(self.executor or request.executor),
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


def forge(
    problem: Problem | str | Path,
    platform: str = "cpu",
    model: str | list[str] = "builtin",
    workplace: RunEnvironment = RunEnvironment(),
    **options: Any,
) -> ForgeResult:
    """Forge a faster drop-in for a problem.

    `model` names who writes: provider:model, command:..., mailbox:DIR, replay:FILE, or builtin, the offline agents; a
    list of names shares the chains among them. `options` are the fields of `Options` (kforge.spec.run_spec), and
    those of its records under their own names: iterations=5, samples=4, target_speedup=2.0, budget=3.0, ...
    Everything is kept in the store, and `kforge.resume` goes on after a break. With executor="bundle:DIR" a run ends
    when all it has left are jobs in that folder: `result.waiting`. Raises kforge.errors only; a program that fails is
    part of the result's history.
    """
    return asyncio.run(forge_async(problem, platform, model, workplace, **options))


async def forge_async(
    problem: Problem | str | Path,
    platform: str = "cpu",
    model: str | list[str] = "builtin",
    workplace: RunEnvironment = RunEnvironment(),
    **options: Any,
) -> ForgeResult:
    """The same for a program that has an event loop of its own."""
    asked = named_options(options)
    target = target_of(platform, asked.executor)
    request = await make_request(problem, platform, model, asked, target, workplace.store)
    return await carry_out(request, workplace)


async def carry_out(request: Request, workplace: RunEnvironment) -> ForgeResult:
    """A new run for a request."""
    check_platform(request.platform, request.executor)
    models = open_models(request, workplace.means)
    if BUILTIN in request.models:
        # What the offline agents cannot write for is said before there is a run.
        check_offline(target_of(request.platform, request.executor))
    with opened(workplace.store) as store:
        run = store.create_run(request)
        workplace.started(run)
        return await _work(store, run, request, models, workplace)


def resume(
    run: str = "last", workplace: RunEnvironment = RunEnvironment(), more: ResumeOptions = ResumeOptions()
) -> ForgeResult:
    """Go on with a run that was broken off, or that is to do more; what was paid for is not asked for again."""
    return asyncio.run(resume_async(run, workplace, more))


async def resume_async(
    run: str = "last", workplace: RunEnvironment = RunEnvironment(), more: ResumeOptions = ResumeOptions()
) -> ForgeResult:
    """The same for a program that has an event loop of its own."""
    with opened(workplace.store) as store:
        found = store.run(run)
        request = more.applied(found.request)
        check_platform(request.platform, request.executor)
        models = open_models(request, workplace.means)
        workplace.started(found.id)
        return await _work(store, found.id, request, models, workplace)


@contextlib.contextmanager
def opened(place: str | Store) -> Iterator[Store]:
    """A store to work with; one that was open before stays open."""
    if isinstance(place, Store):
        yield place
        return
    with Store.open(place) as store:
        yield store


async def _work(
    store: Store, run: str, request: Request, models: dict[str, Limited], workplace: RunEnvironment
) -> ForgeResult:
    executor = workplace.executor or open_executor(request.executor, request.platform)
    staff = RunAgents()
    try:
        with store.hold(run), _states(store, run) as finish, contextlib.ExitStack() as cleanup:
            if store.run(run).request != request:
                store.set_request(run, request)
            journal = cleanup.enter_context(contextlib.closing(RunJournal(store, run, request.keep_prompts)))
            target = target_of(request.platform, request.executor)
            staff = open_staff(request, target, models, workplace.means, journal, store.spent(run), executor.machine)
            shop = RunContext(
                request,
                _judging(request),
                target,
                registry.load("search", request.search),
                staff.crews,
                executor,
                lambda attempt: store.add_attempt(run, attempt),
                workplace.tell,
            )
            loop = Loop(shop, store.history(run))
            stops = await loop.run()
            journal.forget()
            finish(stops)
            usage = store.spent(run)
    finally:
        await staff.close()
        if workplace.executor is None:
            await executor.close()
    return ForgeResult(run, request, loop.history, stops, usage)


def _judging(request: Request) -> Settings:
    wanted = request.profilers
    if wanted is None:
        wanted = judging_platform(request.platform, request.executor).profilers
    return replace(request.settings, profilers=wanted)


@contextlib.contextmanager
def _states(store: Store, run: str) -> Iterator[Callable[[tuple[Stop, ...]], None]]:
    """Keeps the run's state true, whatever way this ends."""

    def finish(stops: tuple[Stop, ...]) -> None:
        open_ends = [stop for stop in stops if not stop.final]
        words = "; ".join(dict.fromkeys(stop.words for stop in open_ends or stops))
        waits = any(stop.reason == "waiting" for stop in stops)
        store.set_state(run, "waiting" if waits else "stopped" if open_ends else "finished", words)

    store.set_state(run, "running")
    try:
        yield finish
    except Exception as error:
        with contextlib.suppress(StoreError):
            store.set_state(run, "failed", f"{error}")
        raise
    except BaseException:
        with contextlib.suppress(StoreError):
            store.set_state(run, "stopped", "interrupted")
        raise
