"""Working on an experiment: cells side by side, each a run in the store; what was done before is not done again.

cells not finished yet -> worker -> forge or resume its run -> judge the winner once more -> record
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

from kforge import registry
from kforge.agents.offline.factory import open_offline
from kforge.errors import KForgeError, RunBusy, StoreError
from kforge.execution.base import Executor, ReportAwaited
from kforge.execution.factory import open_executor
from kforge.experiments.cells import by_fingerprint
from kforge.experiments.confirmation import confirm, needs_confirmation, of_winner
from kforge.experiments.model_health import ModelHealth
from kforge.experiments.progress import News, Tell
from kforge.experiments.session_record import session
from kforge.models.budget_account import BudgetAccount
from kforge.run.api import ForgeResult, ResumeOptions, RunEnvironment, carry_out, resume_async
from kforge.run.loop import RunEvent, first_of
from kforge.run.team import BUILTIN, ModelAccess
from kforge.spec.option_schema import options_of
from kforge.spec.run_spec import make_request, target_of
from kforge.store.experiments import CellState, Experiments
from kforge.store.store import Store
from kforge.types import Cell, Experiment, Usage, best_attempt


@dataclass(frozen=True)
class ExperimentEnvironment:
    """Where an experiment is worked on; none of it changes what comes out."""

    store: Store
    means: ModelAccess = ModelAccess()
    parallel: int = 0
    """Cells at once; 0 for what suits."""
    tell: Tell = lambda _: None
    command: str = ""
    """What the user typed, for the record."""
    executor: Executor | None = None
    """Who judges; None: whom the experiment names."""


async def conduct(name: str, bench: ExperimentEnvironment) -> dict[str, CellState]:
    """Work on an experiment until nothing is left that can be done now; where each cell stands then.

    Raises StoreError if what is found can no longer be recorded. A cell whose problem or harness is at fault is
    recorded as failed, and the others go on. Closes the models that `check` opened.
    """
    experiments = Experiments(bench.store)
    async with contextlib.AsyncExitStack() as closing:
        for (model_name, _), model in bench.means.opened.items():
            if model_name not in bench.means.models:
                closing.push_async_callback(model.close)
        closing.enter_context(experiments.hold(name))
        experiment = experiments.find(name).experiment
        number = experiments.add_session(name, session(experiment, bench.command))
        account = BudgetAccount(experiment.budget, spent_on(bench.store, experiments.standings(name)))
        at = _SessionContext(name, experiment, experiments, number, account, ModelHealth())
        for platform in experiment.platforms:
            await _PlatformWorker(at, bench, platform).work()
        return experiments.standings(name)


def spent_on(store: Store, standings: dict[str, CellState]) -> Usage:
    """What the runs of an experiment have cost."""
    return sum((store.spent(standing.run) for standing in standings.values() if standing.run), Usage())


def usual_parallel(experiment: Experiment, platform: str) -> int:
    """How many cells to have in hand: judges that build beside the timing can take more, and know more problems."""
    if registry.load("platforms", platform).builds_apart:
        return 8
    return 1 if all(set(item.models) == {BUILTIN} for item in experiment.configurations) else 3


@dataclass(frozen=True)
class _SessionContext:
    """A session of an experiment."""

    name: str
    experiment: Experiment
    experiments: Experiments
    number: int
    account: BudgetAccount
    model_health: ModelHealth


class _PlatformWorker:
    """Works on the cells of one platform, with one executor."""

    def __init__(self, at: _SessionContext, bench: ExperimentEnvironment, platform: str) -> None:
        self._at, self._bench, self._platform = at, bench, platform
        self._target = target_of(platform, at.experiment.executor)
        self._means = replace(bench.means, account=at.account)

    async def work(self) -> None:
        known = self._at.experiments.standings(self._at.name)
        mine = [
            (key, cell, known.get(key, CellState()))
            for key, cell in by_fingerprint(self._at.experiment).items()
            if cell.platform == self._platform
        ]
        # What was stopped comes last: a problem that a model never answers must not keep it from the others.
        waiting = iter(sorted(mine, key=lambda item: item[2].state == "stopped"))
        async with self._opened() as executor:
            count = self._bench.parallel or usual_parallel(self._at.experiment, self._platform)
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(count):
                        group.create_task(self._worker(waiting, executor))
            except BaseExceptionGroup as errors:
                raise first_of(errors) from None

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Executor]:
        async with contextlib.AsyncExitStack() as closing:
            executor = self._bench.executor
            if executor is None:
                executor = open_executor(self._at.experiment.executor, self._platform)
                closing.push_async_callback(executor.close)
            if any(BUILTIN in item.models for item in self._at.experiment.configurations):
                # One warm compiler for all cells.
                offline = open_offline(self._target)
                closing.push_async_callback(offline.close)
                self._means = replace(self._means, offline={self._platform: offline})
            yield executor

    async def _worker(self, waiting: Iterator[tuple[str, Cell, CellState]], executor: Executor) -> None:
        for key, cell, standing in waiting:
            self._bench.tell(await self._end_of(key, cell, standing, executor))
            # Cells that need nothing more must not keep signals and other workers waiting.
            await asyncio.sleep(0)

    async def _end_of(self, key: str, cell: Cell, standing: CellState, executor: Executor) -> News:
        """Work on a cell to its end, or to where it cannot go on now."""
        if standing.finished:
            history = self._bench.store.history(standing.run, profiles=False)
            confirmation = of_winner(standing.confirmation, history)
            if confirmation or not self._at.experiment.confirm or not needs_confirmation(history):
                best = best_attempt(history)
                return News(cell, end="earlier", verdict=confirmation or (best.verdict if best else None))
        models = self._at.experiment.configuration(cell.configuration).models
        free = set(models) == {BUILTIN} or standing.state in ("waiting", "finished")
        reason = "" if free else self._at.model_health.put_off(models)
        if reason:
            return News(cell, end="put off", reason=reason)
        self._bench.tell(News(cell))
        standing = replace(standing, session=self._at.number, failure="")
        try:
            return await self._forged(key, cell, standing, executor)
        except ReportAwaited as error:
            return News(cell, end="waiting", reason=str(error))
        except RunBusy as error:
            return News(cell, end="stopped", reason=str(error))
        except StoreError:
            raise
        except Exception as error:
            # One hopeless problem must not keep the others waiting, whatever is wrong with it.
            reason = (
                str(error) if isinstance(error, KForgeError) else f"internal error: {type(error).__name__}: {error}"
            )
            recorded = self._at.experiments.standings(self._at.name).get(key, standing)
            self._at.experiments.put(self._at.name, key, replace(recorded, failure=reason, session=self._at.number))
            return News(cell, end="failed", reason=reason)

    async def _forged(self, key: str, cell: Cell, standing: CellState, executor: Executor) -> News:
        def started(run: str) -> None:
            nonlocal standing
            standing = replace(standing, run=run)
            self._at.experiments.put(self._at.name, key, standing)

        def tell(event: RunEvent) -> None:
            self._bench.tell(News(cell, event, spent=self._at.account.spent))

        place = RunEnvironment(self._bench.store, self._means, tell, started, executor)
        result = await self._result(cell, standing, place)
        models = self._at.experiment.configuration(cell.configuration).models
        self._at.model_health.take(cell.problem, models, result)
        open_ends = [stop for stop in result.stops if not stop.final]
        if open_ends:
            waits = any(stop.reason == "waiting" for stop in open_ends)
            return News(cell, None, "waiting" if waits else "stopped", open_ends[0].words, result.verdict)
        if self._at.experiment.confirm and needs_confirmation(result.history):
            verdict = await confirm(result, executor, lambda words: tell(RunEvent(0, 0, words)))
            self._at.experiments.put(self._at.name, key, replace(standing, confirmation=verdict))
            return News(cell, end="finished", verdict=verdict)
        return News(cell, end="finished", verdict=result.verdict)

    async def _result(self, cell: Cell, standing: CellState, place: RunEnvironment) -> ForgeResult:
        experiment, executor = self._at.experiment, place.executor
        assert executor is not None
        if standing.run:
            return await resume_async(standing.run, place, ResumeOptions(executor=experiment.executor))
        configuration = experiment.configuration(cell.configuration)
        options = options_of(configuration, cell.platform, cell.seed, experiment.executor)
        problem, models = experiment.problems[cell.problem], list(configuration.models)
        # PyTorch's compiler works on this machine's processors: not while something is timed on them.
        turn = executor.machine if options.reference == "inductor" else contextlib.nullcontext()
        async with turn:
            request = await make_request(problem, cell.platform, models, options, self._target, self._bench.store)
        return await carry_out(request, place)
