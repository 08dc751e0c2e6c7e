"""From what a user asks for to an Experiment, with every mistake said at once and before torch is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kforge import registry
from kforge.errors import KForgeError, UsageError
from kforge.execution.executor_names import judges_here, whole_name
from kforge.problems.selection import NotInSuite, missing_on
from kforge.problems.suites import Suite, open_suite
from kforge.spec.configurations import configurations_of
from kforge.spec.experiment_options import OWN_MODELS, ExperimentOptions, Say, own_models, say_nothing
from kforge.spec.mistakes import Mistake, Mistaken, suggest
from kforge.spec.presets import PRESETS
from kforge.spec.run_spec import make_spec
from kforge.spec.validation import configuration_mistakes, model_mistakes, model_name_mistake
from kforge.types import Budget, Cell, Configuration, Experiment, RunSpec


def make_experiment(options: ExperimentOptions, say: Say = say_nothing) -> Experiment:
    """The experiment; Mistaken lists all that is wrong. `say` is told what is left out, and what to think of."""
    mistakes, experiment = examine(options, say)
    if experiment is None:
        raise Mistaken(mistakes)
    return experiment


def examine(options: ExperimentOptions, say: Say = say_nothing) -> tuple[list[Mistake], Experiment | None]:
    """All mistakes in the options; the experiment if there are none."""
    options = replace(options, defaults=_given_defaults(options.defaults))
    mistakes = [*_plain_mistakes(options), *_option_mistakes(options)]
    suite = _suite(options, mistakes)
    configurations = () if mistakes else configurations_of(options, mistakes, say)
    mistakes += _team_mistakes(configurations, options)
    if suite is not None and len(suite.problems) > 1 and _is_replayed(configurations):
        mistakes.append(Mistake(("models",), f"a recording holds one problem, and there are {len(suite.problems)}"))
    if mistakes or suite is None:
        return mistakes, None
    _say_missing(suite, options, say)
    return [], Experiment(
        name=options.name or f"{suite.name} on {', '.join(options.platforms)}",
        problems=suite.problems,
        configurations=configurations,
        platforms=options.platforms,
        seeds=options.seeds,
        suite=suite.name,
        suite_version=suite.version,
        left_out=suite.left_out,
        budget=Budget(options.budget, options.budget_tokens),
        executor=whole_name(options.executor),
        confirm=options.confirm,
        compile_winners=options.compile_winners,
    )


def _given_defaults(defaults: dict[str, Any]) -> dict[str, Any]:
    """The defaults that were given at all, as they come back from a store: lists, no tuples."""
    given = {name: value for name, value in defaults.items() if value is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def _is_replayed(configurations: Sequence[Configuration]) -> bool:
    return any(name.startswith("replay:") for item in configurations for name in item.models)


def _judges_here(executor: str) -> bool:
    """Whether problems must be usable on this machine; an executor that there is none of is a mistake of its own."""
    try:
        return judges_here(executor)
    except KForgeError:
        return True


def _suite(options: ExperimentOptions, mistakes: list[Mistake]) -> Suite | None:
    try:
        return open_suite(options.places, options.choice, options.folder, here=_judges_here(options.executor))
    except KForgeError as error:
        mistakes.append(Mistake((error.key if isinstance(error, NotInSuite) else "suite",), str(error)))
    return None


def _plain_mistakes(options: ExperimentOptions) -> Iterator[Mistake]:
    """Mistakes in everything but problems and configurations."""
    for key in ("platforms", "models", "seeds"):
        values = getattr(options, key)
        if not values:
            yield Mistake((key,), f"{key} is empty: name at least one")
        for value in dict.fromkeys(value for value in values if values.count(value) > 1):
            yield Mistake((key,), f"{key} has {value!r} twice")
    for name in options.platforms:
        try:
            registry.load("platforms", name)
        except UsageError as error:
            yield Mistake(("platforms",), str(error))
    for name in options.presets:
        if name not in PRESETS:
            yield Mistake(("presets",), f"no preset is called {name!r}; {suggest(name, PRESETS)}")
    try:
        whole_name(options.executor)
    except UsageError as error:
        yield Mistake(("executor",), str(error))
    for key in ("budget", "budget_tokens"):
        if not (getattr(options, key) or 0) >= 0:
            yield Mistake((key,), f"{key} must be a number that is not negative")


def _option_mistakes(options: ExperimentOptions) -> Iterator[Mistake]:
    """Mistakes in the defaults, the configurations and the models, each by itself."""
    yield from configuration_mistakes(options.defaults, ("defaults",))
    for model in options.models:
        reason = model_name_mistake(model)
        if reason:
            yield Mistake(("models",), reason)
    for name, own in options.configurations.items():
        where = ("configurations", name)
        yield from configuration_mistakes({key: value for key, value in own.items() if key not in OWN_MODELS}, where)
        if "model" in own and "models" in own:
            yield Mistake((*where, "model"), "model and models both say who writes: one must go")
        for model in own_models(own):
            reason = model_name_mistake(model)
            if reason:
                yield Mistake((*where, "model" if "model" in own else "models"), reason)


def _team_mistakes(configurations: Sequence[Configuration], options: ExperimentOptions) -> list[Mistake]:
    """What is wrong with who writes and advises under each configuration; what several share is said once."""
    mistakes = {}
    for item in configurations:
        for mistake in model_mistakes(item.models, item.options):
            own = mistake.where[0] in options.configurations.get(item.name, {})
            where = ("configurations", item.name, *mistake.where) if own else ("defaults", *mistake.where)
            mistakes[mistake.sentence, where] = Mistake(where, mistake.sentence)
    return list(mistakes.values())


def _say_missing(suite: Suite, options: ExperimentOptions, say: Say) -> None:
    """Problems that have no reference on a platform's hardware: in emulation they have, so nobody takes them away."""
    for platform in options.platforms:
        reasons = [reason for problem in suite.problems.values() if (reason := missing_on(platform, problem))]
        if reasons:
            say(
                f"{len(reasons)} of {len(suite.problems)} problems have no reference on the hardware of {platform} "
                f"(the first {reasons[0]}); `without` {platform} leaves them out"
            )


def cell_spec(experiment: Experiment, cell: Cell) -> RunSpec:
    """What the run of a cell is asked to do. PluginAbsent if it wants pictures and none can be taken."""
    configuration = experiment.configuration(cell.configuration)
    options = {**configuration.options, "seed": cell.seed, "executor": experiment.executor}
    return make_spec(experiment.problems[cell.problem], cell.platform, configuration.models, options)
