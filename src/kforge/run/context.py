"""What a run works with, opened once.

RunSpec (what is asked) + RunEnvironment (where) --prepare--> RunContext (everything open) --> Loop
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace

from kforge import registry
from kforge.agents.base import Target
from kforge.agents.donor_origin import INDUCTOR
from kforge.agents.prompt_maker import check_style
from kforge.errors import StoreError
from kforge.execution.base import Executor, HardwareChoice
from kforge.execution.factory import open_executor
from kforge.models.budget_account import BudgetAccount
from kforge.models.rate_limit import Limited
from kforge.profilers import _names as profiler_names
from kforge.run.hardware_choice import keep_to_hardware
from kforge.run.journal import RunJournal
from kforge.run.model_pool import ModelAccess, ModelPool
from kforge.run.team import ChainAgents, make_team, open_models
from kforge.search.base import Search
from kforge.spec.donor_source import with_donor
from kforge.spec.judging_platform import check_platform, judging_platform, target_of
from kforge.store.store import Store, open_store
from kforge.types import Attempt, RunSpec, Settings, Stop
from kforge.types.run import BUILTIN


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
class RunEnvironment:
    """Where a run works: none of it changes what is asked or how it is judged."""

    store: str | Store = ""
    """A folder or a database URL, or a store that is open already; empty: .kforge in the current folder."""
    access: ModelAccess = ModelAccess()
    tell: Callable[[RunEvent], None] = lambda _: None
    """Told what happens, as it happens."""
    started: Callable[[str], None] = lambda _: None
    """Told the run's name when it has one."""
    executor: Executor | None = None
    """Who judges; None: whom the specification names, for this run alone."""
    pool: ModelPool | None = None
    """Models that several runs share; None: those of this run alone."""


@dataclass(frozen=True)
class RunContext:
    """Everything a run works with."""

    run: str
    """The run's name in the store, which is held."""
    spec: RunSpec
    """What is asked, the donor found."""
    settings: Settings
    """How programs are judged, profilers included."""
    target: Target
    search: Search
    agents: tuple[ChainAgents, ...]
    """Of each chain, round and round."""
    executor: Executor
    store: Store
    journal: RunJournal
    tell: Callable[[RunEvent], None]
    finish: Callable[[tuple[Stop, ...]], None]
    """Records how the chains ended."""

    def record(self, attempt: Attempt) -> None:
        """Keep an attempt; it is safe when this returns."""
        self.store.add_attempt(self.run, attempt)


@contextlib.asynccontextmanager
async def prepare(
    spec: RunSpec, environment: RunEnvironment = RunEnvironment(), run: str = ""
) -> AsyncIterator[RunContext]:
    """Open what a run works with, once, and close it afterwards.

    Everything that can be missing is found before a new run exists and before anything is spent: the platform, keys,
    prices, the donor. Without the name of a `run` a new one begins; with it, that one goes on.
    """
    async with contextlib.AsyncExitStack() as closing:
        pool = environment.pool
        if pool is None:
            pool = ModelPool(environment.access)
            closing.push_async_callback(pool.close)
        executor = environment.executor
        if executor is None:
            # Whoever opened another one has made sure of it; whatever happens to it since is for it to wait out.
            check_platform(spec.platform, spec.executor)
            executor = open_executor(spec.executor, spec.platform)
            closing.push_async_callback(executor.close)
        models = _open_agents(spec, environment.access, pool)
        facts = None
        if isinstance(executor, HardwareChoice):
            history: tuple[Attempt, ...] = ()
            if run:
                with open_store(environment.store) as known:
                    history = known.history(run, profiles=False)
                keep_to_hardware(executor, history)
            if len(history) < spec.plan.samples * spec.plan.iterations:
                # A run that has all its programs waits for no device.
                facts = await executor.facts(lambda words: environment.tell(RunEvent(0, 0, words)))
        target = target_of(spec.platform, spec.executor, spec.problem.form, facts)
        if BUILTIN in spec.models:
            pool.offline(target)
        async with _turn(spec, executor):
            # Before there is a store: none is made for a donor that is not there.
            spec = await with_donor(spec, target, environment.store)
        store = closing.enter_context(open_store(environment.store))
        run = run or store.create_run(spec)
        environment.started(run)
        closing.enter_context(store.hold(run))
        finish = closing.enter_context(_record_state(store, run))
        if store.run(run).spec != spec:
            store.set_spec(run, spec)
        # As the store has it: a live module's file is then the store's own, and stays.
        spec = store.run(run).spec
        journal = closing.enter_context(contextlib.closing(RunJournal(store, run, spec.keep_prompts)))
        account = BudgetAccount(spec.budget, store.spent(run))
        team = make_team(spec, target, environment.access, pool, models, journal, account, executor.machine)
        search = registry.load("search", spec.search)
        tell = environment.tell
        yield RunContext(
            run, spec, judging_settings(spec, facts), target, search, team, executor, store, journal, tell, finish
        )


def check_ready(spec: RunSpec, access: ModelAccess, pool: ModelPool) -> None:
    """Whatever is missing is an error that says so.

    Nothing is sent, and neither a store nor a run is made: the command line asks this before it says anything.
    """
    check_platform(spec.platform, spec.executor)
    _open_agents(spec, access, pool)
    if BUILTIN in spec.models:
        pool.offline(target_of(spec.platform, spec.executor, spec.problem.form))


def _open_agents(spec: RunSpec, access: ModelAccess, pool: ModelPool) -> dict[str, Limited]:
    """The models, open, once everything else that agents need is there."""
    check_style(spec.style, spec.prompts)
    for name in spec.profilers or ():
        profiler_names.find(name)
    return open_models(spec, access, pool)


def _turn(spec: RunSpec, executor: Executor) -> contextlib.AbstractAsyncContextManager[None]:
    """PyTorch's compiler works on this machine's processors: not while something is timed on them."""
    compiles = spec.reference == INDUCTOR and spec.donor is None
    return executor.machine if compiles else contextlib.nullcontext()


def judging_settings(spec: RunSpec, facts: dict[str, str] | None = None) -> Settings:
    """How programs are judged, with the profilers that are meant; `facts` of the device, where one was chosen."""
    profilers = spec.profilers
    if profilers is None:
        profilers = judging_platform(spec.platform, spec.executor, facts).profilers
    return replace(spec.settings, profilers=profilers)


@contextlib.contextmanager
def _record_state(store: Store, run: str) -> Iterator[Callable[[tuple[Stop, ...]], None]]:
    """Keeps the run's state in the store true, whatever way the block ends."""

    def finish(stops: tuple[Stop, ...]) -> None:
        open_ends = [stop for stop in stops if not stop.final]
        reason = "; ".join(dict.fromkeys(stop.words for stop in open_ends or stops))
        waits = any(stop.reason == "waiting" for stop in stops)
        store.set_state(run, "waiting" if waits else "stopped" if open_ends else "finished", reason)

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
