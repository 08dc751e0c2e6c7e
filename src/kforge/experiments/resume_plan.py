"""Before the first cell: which experiment of the store it is, and whether everything it needs is there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kforge.agents.offline.factory import check_offline
from kforge.experiments.cells import by_fingerprint
from kforge.models.budget_account import BudgetAccount
from kforge.run.team import BUILTIN, ModelAccess, open_models
from kforge.spec.option_schema import options_of
from kforge.spec.run_spec import check_platform, request_without_reference, target_of
from kforge.store.experiments import CellState, Experiments
from kforge.store.store import Store
from kforge.types import Experiment, Session, text_hash


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
        way = ResumePlan() if fresh else way_on(experiments, experiment)
        if not way.name:
            return experiments.create(experiment, way.sessions, way.done)
        if way.change:
            with experiments.hold(way.name):
                experiments.change(way.name, experiment)
        return way.name


def way_on(experiments: Experiments, experiment: Experiment) -> ResumePlan:
    """What `begin` would do; nothing is done."""
    known = {name: experiments.find(name).experiment for name in experiments.named(experiment.name)}
    for name, other in known.items():
        if other == experiment:
            return ResumePlan(name, done=experiments.standings(name))
    wanted = by_fingerprint(experiment)
    for name in known:
        there = experiments.standings(name)
        if there.keys() <= wanted.keys():
            return ResumePlan(name, True, done=there)
    sessions: list[Session] = []
    done: dict[str, CellState] = {}
    for name in known:
        there = experiments.standings(name)
        useful = {key: there[key] for key in wanted if key in there and key not in done}
        if useful:
            done |= {key: replace(item, session=item.session + len(sessions)) for key, item in useful.items()}
            sessions += experiments.sessions(name)
    return ResumePlan(sessions=tuple(sessions), done=done)


def check(experiment: Experiment, means: ModelAccess) -> ModelAccess:
    """The means with all models open; whatever cannot work is an error here, before anything is spent."""
    opened = dict(means.opened)
    for platform in experiment.platforms:
        check_platform(platform, experiment.executor)
        target = target_of(platform, experiment.executor)
        for configuration in experiment.configurations:
            if BUILTIN in configuration.models:
                check_offline(target)
            options = options_of(configuration, platform, executor=experiment.executor)
            problem = next(iter(experiment.problems.values()))
            request = request_without_reference(problem, platform, configuration.models, options)
            found = open_models(request, replace(means, opened=opened, account=BudgetAccount(experiment.budget)))
            opened |= {(name, options.model_settings): model for name, model in found.items()}
    return replace(means, opened=opened)
