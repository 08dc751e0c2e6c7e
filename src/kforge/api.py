"""The Python face: kforge.forge, kforge.resume, kforge.evaluate and kforge.bench."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from kforge.cli.live import LiveRuns
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.execution.base import Executor
from kforge.experiments.resume_plan import begin, open_experiment, with_cache_note
from kforge.experiments.scheduler import ExperimentEnvironment, conduct
from kforge.experiments.study_reader import study_of
from kforge.packages.forge_result import ForgeResult
from kforge.reports.trial_rows import row
from kforge.run.context import RunEnvironment, RunEvent
from kforge.run.lifecycle import drive_run
from kforge.run.model_pool import ModelAccess
from kforge.run.result import RunResult
from kforge.spec.experiment_file import read_experiment
from kforge.spec.run_options import RunOptions
from kforge.spec.run_spec import ResumeOptions, make_spec, one_problem
from kforge.store.experiments import Experiments
from kforge.store.store import Store, open_store
from kforge.types import Attempt, Candidate, Experiment, Problem, ProblemForm, RunSpec, Settings, Study, Verdict
from kforge.types.evaluation import BaselineName, Limits, Policy, SandboxChoice
from kforge.worker.jobs import read_candidate
from kforge.worker.judge.judge import Judge

_judges: dict[str, Judge] = {}


def forge(
    problem: Problem | str | Path,
    platform: str = "cpu",
    model: str | Sequence[str] = "builtin",
    environment: RunEnvironment = RunEnvironment(),
    *,
    progress: bool | None = None,
    **options: Unpack[RunOptions],
) -> ForgeResult:
    """Forge a faster drop-in for a problem.

    `problem` is a Problem (Problem.from_module for a live module), a file, or "bundled:level1/2". `model` names who
    writes: provider:model, command:..., mailbox:DIR, replay:FILE, or builtin, the offline agents; a list of names
    shares the chains among them. `options` are those of kforge.RunOptions: iterations=5, samples=4,
    target_speedup=2.0, budget=3.0, ... `progress` shows what happens as it happens; by default where a person looks on.

    Everything is kept in the store, and kforge.resume goes on after a break. With executor="bundle:DIR" a run ends
    when all it has left are jobs in that folder: `result.waiting`. Raises kforge.errors only; a program that fails is
    part of the result's history.
    """
    return asyncio.run(forge_async(problem, platform, model, environment, progress=progress, **options))


async def forge_async(
    problem: Problem | str | Path,
    platform: str = "cpu",
    model: str | Sequence[str] = "builtin",
    environment: RunEnvironment = RunEnvironment(),
    *,
    progress: bool | None = None,
    **options: Unpack[RunOptions],
) -> ForgeResult:
    """kforge.forge for a program that has an event loop of its own."""
    spec = make_spec(problem, platform, model, options)
    with _display(spec, environment, progress) as shown:
        return _as_forge_result(await drive_run(spec, shown))


def resume(
    run: str = "last",
    environment: RunEnvironment = RunEnvironment(),
    changes: ResumeOptions = ResumeOptions(),
    *,
    progress: bool | None = None,
) -> ForgeResult:
    """Go on with a run that was broken off, or that is to do more; what was paid for is not asked for again."""
    return asyncio.run(resume_async(run, environment, changes, progress=progress))


async def resume_async(
    run: str = "last",
    environment: RunEnvironment = RunEnvironment(),
    changes: ResumeOptions = ResumeOptions(),
    *,
    progress: bool | None = None,
) -> ForgeResult:
    """kforge.resume for a program that has an event loop of its own."""
    with open_store(environment.store) as store:
        stored = store.run(run)
        environment = replace(environment, store=store)
        past = store.history(stored.id, profiles=False)
        spec = changes.apply_to(stored.spec)
        with _display(spec, environment, progress, past) as shown:
            return _as_forge_result(await drive_run(spec, shown, stored.id))


def bench(
    experiment: Experiment | str | Path,
    store: str | Store = "",
    *,
    access: ModelAccess = ModelAccess(),
    executor: Executor | None = None,
    parallel: int = 0,
    fresh: bool = False,
) -> Study:
    """Work on an experiment, and read what came of it.

    `experiment` is an Experiment or a TOML file (docs/experiments.md). The same call goes on where it stopped; `fresh`
    begins anew. `access` says how models are reached, `executor` who judges instead of whom the experiment names, and
    `parallel` how many cells are in hand at once. kforge.rows(study) gives a row for each trial; kforge.reports makes
    pages and tables of a Study.
    """
    notes: list[str] = []
    if not isinstance(experiment, Experiment):
        experiment = replace(read_experiment(experiment, notes.append), notes=tuple(notes))
    experiment = with_cache_note(experiment, access)
    pool = open_experiment(experiment, access)
    with open_store(store) as opened:
        name = begin(experiment, opened, fresh)
        where = ExperimentEnvironment(opened, access, parallel, command="kforge.bench", executor=executor, pool=pool)
        asyncio.run(conduct(name, where))
        return study_of(opened, Experiments(opened).find(name))


def rows(study: Study) -> list[dict[str, Any]]:
    """A row of plain values for each trial of a study: problem, platform, configuration, outcome, speedup, cost, ..."""
    return [asdict(row(trial)) for trial in study.trials]


class EvaluateOptions(TypedDict, total=False):
    """How a candidate is judged: the fields of kforge.Settings, and those of kforge.ProblemForm for the problem."""

    dtype: str
    backward: bool
    baseline: BaselineName
    compile_baseline: bool
    autotune_baseline: bool
    policy: Policy
    precision: str
    seeds: int
    timing_seconds: float
    sandbox: SandboxChoice
    profilers: tuple[str, ...]
    sanitize: bool
    seed: int | None
    limits: Limits


def evaluate(
    problem: Problem | str | Path,
    candidate: Candidate | str | Path,
    platform: str = "cpu",
    **settings: Unpack[EvaluateOptions],
) -> Verdict:
    """Judge a candidate, with a warm judge that is kept for the life of the process.

    `problem` is a Problem, a file, or "bundled:level1/2"; `candidate` a Candidate, a path, or the program's text. A bad
    candidate gives a Verdict; only a bad problem, request or machine raises (kforge.errors).
    """
    if not isinstance(problem, Problem):
        problem = one_problem(problem)
    options: dict[str, Any] = dict(settings)
    try:
        problem = problem.in_form(ProblemForm(options.pop("dtype", ""), options.pop("backward", False)))
        wanted = Settings(**options)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    return shared_judge(platform).evaluate(problem, _as_candidate(candidate, platform), wanted)


def shared_judge(platform: str = "cpu") -> Judge:
    """The process's judge for a platform, started when first asked for and closed at exit."""
    if platform not in _judges:
        _judges[platform] = Judge(platform)
        atexit.register(_judges[platform].close)
    return _judges[platform]


def _as_candidate(candidate: Candidate | str | Path, platform: str) -> Candidate:
    if isinstance(candidate, Candidate):
        return candidate
    if isinstance(candidate, Path) or ("\n" not in candidate and candidate.endswith(".py")):
        return read_candidate(Path(candidate), platform)
    return Candidate(candidate, platform)


def _as_forge_result(result: RunResult) -> ForgeResult:
    return ForgeResult(result.run, result.spec, result.history, result.stops, result.usage)


@contextlib.contextmanager
def _display(
    spec: RunSpec, environment: RunEnvironment, progress: bool | None, past: tuple[Attempt, ...] = ()
) -> Iterator[RunEnvironment]:
    """The environment with a live display of each chain, where one is wanted: on standard error."""
    wanted = sys.stderr.isatty() if progress is None else progress
    if not wanted:
        yield environment
        return
    with LiveRuns(Screen(stderr=True)) as live:
        rows = live.add(spec.problem.name, spec.plan.iterations, spec.plan.samples, past)

        def tell(event: RunEvent) -> None:
            live.take(rows, event)
            environment.tell(event)

        yield replace(environment, tell=tell)
