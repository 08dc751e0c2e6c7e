"""Before the first cell: which experiment of the store it is, and whether everything it needs is there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kforge.agents.offline.opening import check_offline
from kforge.bench.cells import by_fingerprint
from kforge.bench.design.words import options_of
from kforge.forging.crews import BUILTIN, Means, open_models
from kforge.forging.requesting import check_platform, request_without_reference, target_of
from kforge.models.budgeted import Purse
from kforge.store.experiments import Experiments, Standing
from kforge.store.store import Store
from kforge.types import Experiment, Sitting, text_hash


@dataclass(frozen=True)
class Way:
    """How an experiment would go on from what the store has."""

    name: str = ""
    """The experiment to work on; empty: a new one."""
    change: bool = False
    """Whether that one was asked for otherwise before."""
    sittings: tuple[Sitting, ...] = ()
    done: dict[str, Standing] = field(default_factory=dict)
    """What a new one takes over, or what the old one has done."""


def begin(experiment: Experiment, store: Store, fresh: bool = False) -> str:
    """The id of the experiment to work on: one of its name of which nothing done would be left out, as it is asked for
    now; else a new one that takes over what the others of its name have done of it.
    """
    experiments = Experiments(store)
    with store.hold_name(f"begin-{text_hash(experiment.name)}", f"experiment {experiment.name}"):
        way = Way() if fresh else way_on(experiments, experiment)
        if not way.name:
            return experiments.create(experiment, way.sittings, way.done)
        if way.change:
            with experiments.hold(way.name):
                experiments.change(way.name, experiment)
        return way.name


def way_on(experiments: Experiments, experiment: Experiment) -> Way:
    """What `begin` would do; nothing is done."""
    known = {name: experiments.find(name).experiment for name in experiments.named(experiment.name)}
    for name, other in known.items():
        if other == experiment:
            return Way(name, done=experiments.standings(name))
    wanted = by_fingerprint(experiment)
    for name in known:
        there = experiments.standings(name)
        if there.keys() <= wanted.keys():
            return Way(name, True, done=there)
    sittings: list[Sitting] = []
    done: dict[str, Standing] = {}
    for name in known:
        there = experiments.standings(name)
        useful = {key: there[key] for key in wanted if key in there and key not in done}
        if useful:
            done |= {key: replace(item, sitting=item.sitting + len(sittings)) for key, item in useful.items()}
            sittings += experiments.sittings(name)
    return Way(sittings=tuple(sittings), done=done)


def check(experiment: Experiment, means: Means) -> Means:
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
            found = open_models(request, replace(means, opened=opened, purse=Purse(experiment.budget)))
            opened |= {(name, options.model_settings): model for name, model in found.items()}
    return replace(means, opened=opened)
