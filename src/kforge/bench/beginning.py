"""Before the first cell: which experiment of the store it is, and whether everything it needs is there."""

from __future__ import annotations

from dataclasses import replace

from kforge.agents.offline.opening import check_offline
from kforge.bench.cells import by_fingerprint
from kforge.bench.design.words import options_of
from kforge.forging.crews import BUILTIN, Means, open_models
from kforge.forging.requesting import check_platform, request_without_reference, target_of
from kforge.models.budgeted import Purse
from kforge.store.experiments import Experiments, Standing
from kforge.store.store import Store
from kforge.types import Experiment, Sitting, text_hash


def begin(experiment: Experiment, store: Store, fresh: bool = False) -> str:
    """The id of the experiment to work on: one of its name of which nothing done would be left out, as it is asked for
    now; else a new one that takes over what the others of its name have done of it.
    """
    experiments = Experiments(store)
    with store.hold_name(f"begin-{text_hash(experiment.name)}", f"experiment {experiment.name}"):
        return experiments.create(experiment) if fresh else _going_on(experiments, experiment)


def _going_on(experiments: Experiments, experiment: Experiment) -> str:
    known = {name: experiments.find(name).experiment for name in experiments.named(experiment.name)}
    for name, other in known.items():
        if other == experiment:
            return name
    wanted = by_fingerprint(experiment)
    for name in known:
        if experiments.standings(name).keys() <= wanted.keys():
            with experiments.hold(name):
                experiments.change(name, experiment)
            return name
    sittings: list[Sitting] = []
    done: dict[str, Standing] = {}
    for name in known:
        there = experiments.standings(name)
        useful = {key: there[key] for key in wanted if key in there and key not in done}
        if useful:
            done |= {key: replace(item, sitting=item.sitting + len(sittings)) for key, item in useful.items()}
            sittings += experiments.sittings(name)
    return experiments.create(experiment, sittings, done)


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
