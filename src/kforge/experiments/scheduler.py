"""Working on an experiment: cells side by side, each a run in the store; what was done before is not done again.

cells not finished yet -> worker -> start or resume its run -> judge the winner once more -> record
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kforge import registry
from kforge.errors import KForgeError, RunBusy, StoreError
from kforge.execution.base import Executor, HardwareChoice, ReportAwaited
from kforge.execution.executor_names import parse_executor
from kforge.execution.factory import open_executor
from kforge.experiments.cells import cells_by_fingerprint
from kforge.experiments.confirmation import confirm, needs_confirmation, of_winner
from kforge.experiments.model_health import ModelHealth
from kforge.experiments.progress import News, Tell
from kforge.experiments.session_record import new_session
from kforge.models.budget_account import BudgetAccount
from kforge.run.context import RunEnvironment, RunEvent
from kforge.run.hardware_choice import model_of
from kforge.run.lifecycle import drive_run
from kforge.run.loop import first_of
from kforge.run.model_pool import ModelAccess, ModelPool
from kforge.run.result import RunResult
from kforge.spec.experiment_spec import cell_spec
from kforge.spec.run_spec import ResumeOptions
from kforge.store.experiments import CellState, Experiments
from kforge.store.store import Store
from kforge.types import Cell, Experiment, Usage, best_attempt
from kforge.types.run import BUILTIN

_LOOK_SECONDS = 15.0
"""Between two looks at how many machines there are."""


@dataclass(frozen=True)
class ExperimentEnvironment:
    """Where an experiment is worked on; none of it changes what comes out."""

    store: Store
    access: ModelAccess = ModelAccess()
    parallel: int = 0
    """Cells at once, of each platform; 0 for what suits."""
    tell: Tell = lambda _: None
    command: str = ""
    """What the user typed, for the record."""
    executor: Executor | None = None
    """Who judges; None: whom the experiment names."""
    pool: ModelPool | None = None
    """The models that `open_experiment` opened; None: they are opened as cells need them."""


async def _all_of(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them side by side; the first error ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def conduct(name: str, environment: ExperimentEnvironment) -> dict[str, CellState]:
    """Work on an experiment until nothing is left that can be done now; the state of each cell then.

    Raises StoreError if results can no longer be recorded. A cell whose problem or harness is at fault is recorded as
    failed, and the others go on. Closes the pool of models.
    """
    experiments = Experiments(environment.store)
    pool = environment.pool or ModelPool(environment.access)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(pool.close)
        closing.enter_context(experiments.hold(name))
        experiment = experiments.find(name).experiment
        number = experiments.add_session(name, new_session(experiment, environment.command))
        account = BudgetAccount(experiment.budget, spent_on(environment.store, experiments.cell_states(name)))
        access = replace(environment.access, account=account)
        environment = replace(environment, access=access, pool=pool)
        work = _Session(name, experiment, experiments, number, ModelHealth(), environment)
        workers = [_PlatformWorker(work, platform) for platform in experiment.platforms]
        if await asyncio.to_thread(work.judges_elsewhere):
            await _all_of(worker.work() for worker in workers)
        else:
            for worker in workers:
                await worker.work()
        return experiments.cell_states(name)


def spent_on(store: Store, states: dict[str, CellState]) -> Usage:
    """What the runs of an experiment have cost."""
    return sum((store.spent(state.run) for state in states.values() if state.run), Usage())


def usual_parallel(experiment: Experiment, platform: str, places: int = 0) -> int:
    """How many cells to have in hand: judges that build beside the timing can take more, and know more problems.

    `places`: of other machines, how many programs they take at once; of as many cells again, the models are asked.
    """
    if places:
        return max(8, 2 * places)
    if registry.load("platforms", platform).builds_apart:
        return 8
    return 1 if all(set(item.models) == {BUILTIN} for item in experiment.configurations) else 3


def places_now(experiment: Experiment, platform: str) -> int:
    """How many programs the machines that an experiment names take at once; 0 where that is this one."""
    plugin, argument = parse_executor(experiment.executor)
    return plugin.places(argument, platform)


@dataclass(frozen=True)
class _Session:
    """One time of working on an experiment: the experiment, its records, and what was learned of its models."""

    name: str
    experiment: Experiment
    experiments: Experiments
    number: int
    health: ModelHealth
    environment: ExperimentEnvironment

    def put(self, key: str, state: CellState) -> None:
        self.experiments.put(self.name, key, state)

    def tell(self, news: News) -> None:
        self.environment.tell(news)

    def models(self, cell: Cell) -> tuple[str, ...]:
        return self.experiment.configuration(cell.configuration).models

    def judges_elsewhere(self) -> bool:
        """Whether each platform has machines of its own, so that none has to wait for another's."""
        return all(self.places(platform) for platform in self.experiment.platforms)

    def places(self, platform: str) -> int:
        """How many programs the machines for a platform take at once; 0 where they are this one."""
        return 0 if self.environment.executor is not None else places_now(self.experiment, platform)

    @property
    def spent(self) -> Usage:
        assert self.environment.access.account is not None
        return self.environment.access.account.spent


class _PlatformWorker:
    """Works on the cells of one platform, with one executor, or one for each model of device that judges runs."""

    def __init__(self, session: _Session, platform: str) -> None:
        self._session, self._platform = session, platform
        self._executors: dict[str, Executor] = {}
        self._closing = contextlib.AsyncExitStack()
        self._first_model = ""
        self._places = 0
        self._all_in_hand = asyncio.Event()

    async def work(self) -> None:
        experiment = self._session.experiment
        known = self._session.experiments.cell_states(self._session.name)
        own = [
            (key, cell, known.get(key, CellState()))
            for key, cell in cells_by_fingerprint(experiment).items()
            if cell.platform == self._platform
        ]
        # What was stopped comes last: a problem that a model never answers must not keep it from the others.
        waiting = iter(sorted(own, key=lambda item: item[2].state == "stopped"))
        async with contextlib.AsyncExitStack() as closing:
            self._closing = closing
            self._places = await asyncio.to_thread(self._session.places, self._platform)
            self._first_model = next(filter(None, (self._model_of(state.run) for _, _, state in own)), "")
            count = self._session.environment.parallel or usual_parallel(experiment, self._platform, self._places)
            works = [self._work_through(waiting) for _ in range(count)]
            if self._places and not self._session.environment.parallel:
                works.append(self._work_at_new_places(waiting, count))
            await _all_of(works)

    async def _work_at_new_places(self, waiting: Iterator[tuple[str, Cell, CellState]], count: int) -> None:
        """More cells in hand when more machines are there, until all cells are in hand."""
        async with asyncio.TaskGroup() as group:
            while not await _is_set_within(self._all_in_hand, _LOOK_SECONDS):
                places = await asyncio.to_thread(self._session.places, self._platform)
                wanted = usual_parallel(self._session.experiment, self._platform, places)
                for _ in range(wanted - count):
                    group.create_task(self._work_through(waiting))
                count = max(count, wanted)

    def _executor_for(self, run: str) -> Executor:
        """Who judges a cell: on the model of device that its run was judged on, a new one on the experiment's first."""
        if self._session.environment.executor is not None:
            return self._session.environment.executor
        model = self._model_of(run) or self._first_model
        if model not in self._executors:
            executor = open_executor(self._session.experiment.executor, self._platform)
            self._closing.push_async_callback(executor.close)
            if isinstance(executor, HardwareChoice) and model:
                executor.keep_to_hardware(model)
            self._executors[model] = executor
        return self._executors[model]

    def _model_of(self, run: str) -> str:
        """The model of device that a run was judged on; empty where it tells of none, and where this machine judges."""
        if not (run and self._places):
            return ""
        return model_of(self._session.environment.store.history(run, profiles=False))

    async def _work_through(self, waiting: Iterator[tuple[str, Cell, CellState]]) -> None:
        for key, cell, state in waiting:
            self._session.tell(await self._work_on_cell(key, cell, state))
            # Cells that need nothing more must not keep signals and other workers waiting.
            await asyncio.sleep(0)
        self._all_in_hand.set()

    async def _work_on_cell(self, key: str, cell: Cell, state: CellState) -> News:
        """Work on a cell to its end, or to where it cannot go on now."""
        earlier = self._earlier_news(cell, state)
        if earlier is not None:
            return earlier
        models = self._session.models(cell)
        free = set(models) == {BUILTIN} or state.state in ("waiting", "finished")
        reason = "" if free else self._session.health.put_off(models)
        if reason:
            return News(cell, end="put off", reason=reason)
        self._session.tell(News(cell))
        state = replace(state, session=self._session.number, failure="")
        try:
            return await self._run(key, cell, state, self._executor_for(state.run))
        except ReportAwaited as error:
            return News(cell, end="waiting", reason=str(error))
        except RunBusy as error:
            return News(cell, end="stopped", reason=str(error))
        except StoreError:
            raise
        except Exception as error:
            # One hopeless problem must not keep the others waiting, whatever is wrong with it.
            internal = f"internal error: {type(error).__name__}: {error}"
            return self._record_failure(key, cell, state, str(error) if isinstance(error, KForgeError) else internal)

    def _earlier_news(self, cell: Cell, state: CellState) -> News | None:
        """How a cell ended in an earlier session; None if something is left to do."""
        if not state.finished:
            return None
        history = self._session.environment.store.history(state.run, profiles=False)
        confirmation = of_winner(state.confirmation, history)
        if confirmation is None and needs_confirmation(self._session.experiment, history):
            return None
        best = best_attempt(history)
        return News(cell, end="earlier", verdict=confirmation or (best.verdict if best else None))

    def _record_failure(self, key: str, cell: Cell, state: CellState, reason: str) -> News:
        recorded = self._session.experiments.cell_states(self._session.name).get(key, state)
        self._session.put(key, replace(recorded, failure=reason, session=self._session.number))
        return News(cell, end="failed", reason=reason)

    async def _run(self, key: str, cell: Cell, state: CellState, executor: Executor) -> News:
        def note_start(run: str) -> None:
            nonlocal state
            state = replace(state, run=run)
            self._session.put(key, state)

        def tell(event: RunEvent) -> None:
            self._session.tell(News(cell, event, spent=self._session.spent))

        where = self._session.environment
        environment = RunEnvironment(where.store, where.access, tell, note_start, executor, where.pool)
        result = await self._result(cell, state, environment)
        self._session.health.take(cell.problem, self._session.models(cell), result)
        open_ends = [stop for stop in result.stops if not stop.final]
        if open_ends:
            waits = any(stop.reason == "waiting" for stop in open_ends)
            return News(cell, None, "waiting" if waits else "stopped", open_ends[0].words, result.verdict)
        if needs_confirmation(self._session.experiment, result.history):
            verdict = await confirm(
                self._session.experiment, result, executor, lambda message: tell(RunEvent(0, 0, message))
            )
            self._session.put(key, replace(state, confirmation=verdict))
            return News(cell, end="finished", verdict=verdict)
        return News(cell, end="finished", verdict=result.verdict)

    async def _result(self, cell: Cell, state: CellState, environment: RunEnvironment) -> RunResult:
        experiment = self._session.experiment
        if state.run:
            stored = self._session.environment.store.run(state.run).spec
            spec = ResumeOptions(executor=experiment.executor).apply_to(stored)
        else:
            spec = cell_spec(experiment, cell)
        return await drive_run(spec, environment, state.run)
