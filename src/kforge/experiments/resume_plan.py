"""Before the first cell: which experiment of the store to work on, and whether everything it needs is there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kforge.agents.offline.factory import check_offline
from kforge.experiments.cells import cells_by_fingerprint
from kforge.models.budget_account import BudgetAccount
from kforge.run.model_pool import ModelAccess, ModelPool
from kforge.run.team import open_models
from kforge.spec.experiment_spec import cell_spec
from kforge.spec.judging_platform import check_platform, target_of
from kforge.store.experiments import CellState, Experiments
from kforge.store.store import Store
from kforge.types import Cell, Experiment, Session, text_hash
from kforge.types.run import BUILTIN

_SHARED = "Replies were shared through a cache: who asked first paid, so costs of configurations do not compare."


@dataclass(frozen=True)
class ResumePlan:
    """How an experiment would go on from what the store has."""

    name: str = ""
    """The experiment to work on; empty: a new one."""
    change: bool = False
    """Whether that one was asked for otherwise before."""
    sessions: tuple[Session, ...] = ()
    done: dict[str, CellState] = field(default_factory=dict)
    """What a new one takes over, or what the old one has done."""


def begin(experiment: Experiment, store: Store, fresh: bool = False) -> str:
    """The id of the experiment to work on: one of its name of which nothing done would be left out, as it is asked for
    now; else a new one that takes over what the others of its name have done of it.
    """
    experiments = Experiments(store)
    with store.hold_name(f"begin-{text_hash(experiment.name)}", f"experiment {experiment.name}"):
        plan = ResumePlan() if fresh else resume_plan(experiments, experiment)
        if not plan.name:
            return experiments.create(experiment, plan.sessions, plan.done)
        if plan.change:
            with experiments.hold(plan.name):
                experiments.change(plan.name, experiment)
        return plan.name


def resume_plan(experiments: Experiments, experiment: Experiment) -> ResumePlan:
    """What `begin` would do; nothing is done."""
    known = {name: experiments.find(name).experiment for name in experiments.ids_of_name(experiment.name)}
    for name, other in known.items():
        if other == experiment:
            return ResumePlan(name, done=experiments.cell_states(name))
    wanted = cells_by_fingerprint(experiment)
    for name in known:
        there = experiments.cell_states(name)
        if there.keys() <= wanted.keys():
            return ResumePlan(name, True, done=there)
    sessions: list[Session] = []
    done: dict[str, CellState] = {}
    for name in known:
        there = experiments.cell_states(name)
        useful = {key: there[key] for key in wanted if key in there and key not in done}
        if useful:
            done |= {key: replace(item, session=item.session + len(sessions)) for key, item in useful.items()}
            sessions += experiments.sessions(name)
    return ResumePlan(sessions=tuple(sessions), done=done)


def with_cache_note(experiment: Experiment, access: ModelAccess) -> Experiment:
    """The experiment with a note for its report, where runs share replies."""
    return replace(experiment, notes=(*experiment.notes, _SHARED)) if access.cache else experiment


def open_experiment(experiment: Experiment, access: ModelAccess) -> ModelPool:
    """Every model of an experiment, open; whatever cannot work is an error here, before anything is spent."""
    pool = ModelPool(access)
    access = replace(access, account=BudgetAccount(experiment.budget))
    problem, seed = next(iter(experiment.problems.items())), experiment.seeds[0]
    for platform in experiment.platforms:
        check_platform(platform, experiment.executor)
        if any(BUILTIN in configuration.models for configuration in experiment.configurations):
            check_offline(target_of(platform, experiment.executor))
        for configuration in experiment.configurations:
            cell = Cell(problem[0], problem[1].id, platform, configuration.name, seed)
            open_models(cell_spec(experiment, cell), access, pool)
    return pool
