"""The configurations of an experiment: those of its presets, and the user's own, for each model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kforge.execution.executor_names import judges_here
from kforge.spec.experiment_options import OWN_MODELS, ExperimentOptions, Say, own_models
from kforge.spec.judging_platform import judging_platform
from kforge.spec.mistakes import Mistake, Where
from kforge.spec.presets import PRESETS, override
from kforge.spec.profiling_modes import no_profile_reason
from kforge.types import Configuration
from kforge.types.run import BUILTIN


def configurations_of(options: ExperimentOptions, mistakes: list[Mistake], say: Say) -> tuple[Configuration, ...]:
    """All configurations, each once; two of one name that differ are a mistake, which is added to the others."""
    configurations: dict[str, Configuration] = {}
    for name in options.presets:
        _check_readers(name, options, mistakes)
        for configuration in _preset_configurations(name, options, mistakes, say):
            _add(configurations, _for_models(configuration, options.models), ("presets",), mistakes)
    for name, table in options.configurations.items():
        own = {key: value for key, value in table.items() if key not in OWN_MODELS}
        configuration = Configuration(name, options=override(options.defaults, own))
        where = ("configurations", name)
        _check_profiling(configuration, where, options, mistakes)
        own_team = own_models(table)
        made = [replace(configuration, models=own_team)] if own_team else _for_models(configuration, options.models)
        _add(configurations, made, where, mistakes)
    if mistakes:
        return ()
    if not configurations:
        alone = [Configuration(model, (model,), override({}, options.defaults)) for model in options.models]
        _check_profiling(alone[0], ("defaults",), options, mistakes)
        _add(configurations, alone, ("models",), mistakes)
    _check_defaults_used(configurations, options, mistakes)
    return tuple(configurations.values())


def _check_defaults_used(
    configurations: dict[str, Configuration], options: ExperimentOptions, mistakes: list[Mistake]
) -> None:
    """A default that every configuration overrules would change nothing, and its user would not know."""
    for name, value in options.defaults.items():
        if value != "" and not any(item.options.get(name) == value for item in configurations.values()):
            sentence = (
                f"{name} = {value!r} is taken by no configuration: {', '.join(configurations) or 'there is none'}"
            )
            cure = "; iterative+reference is the preset that has one" if name == "reference" else ""
            mistakes.append(Mistake(("defaults", name), sentence + cure))


def _check_readers(name: str, options: ExperimentOptions, mistakes: list[Mistake]) -> None:
    unread = PRESETS[name].unread
    if unread and BUILTIN in options.models:
        sentence = (
            f"{name} takes a language model: the offline agents read no {unread} (name one in models; a configuration "
            f"of your own with model = {BUILTIN!r} may stand beside it)"
        )
        mistakes.append(Mistake(("presets",), sentence))


def _for_models(configuration: Configuration, models: tuple[str, ...]) -> list[Configuration]:
    if len(models) == 1:
        return [replace(configuration, models=models)]
    return [replace(configuration, name=f"{configuration.name} · {model}", models=(model,)) for model in models]


def _add(
    configurations: dict[str, Configuration], more: list[Configuration], where: Where, mistakes: list[Mistake]
) -> None:
    for configuration in more:
        if configurations.setdefault(configuration.name, configuration) != configuration:
            mistakes.append(Mistake(where, f"two configurations are called {configuration.name!r}: rename one"))


def _preset_configurations(
    name: str, options: ExperimentOptions, mistakes: list[Mistake], say: Say
) -> Iterator[Configuration]:
    """The configurations of a preset, without those that show nothing here: that is said."""
    preset = PRESETS[name]
    possible = []
    reasons = []
    for configuration in preset.configurations(options.defaults):
        reason = _no_profile_reason(configuration, options)
        if reason and preset.is_ablation:
            reasons.append(f"{configuration.name} is left out: {reason}")
        else:
            possible.append(configuration)
    references = {configuration.options.get("reference") for configuration in possible}
    if name == "transfer" and references & set(options.platforms):
        mistakes.append(
            Mistake(("presets",), "transfer: the reference is from the platform itself; name another in the defaults")
        )
    if preset.is_ablation and len(possible) < 2:
        mistakes.append(Mistake(("presets",), f"{name} has nothing to compare here: {'; '.join(reasons)}"))
        return
    for sentence in reasons:
        say(sentence)
    yield from possible


def _check_profiling(
    configuration: Configuration, where: Where, options: ExperimentOptions, mistakes: list[Mistake]
) -> None:
    reason = _no_profile_reason(configuration, options)
    if reason:
        mistakes.append(Mistake((*where, "profiling"), f"profiling {configuration.options['profiling']}: {reason}"))


def _no_profile_reason(configuration: Configuration, options: ExperimentOptions) -> str:
    """Why a configuration's profiling shows nothing on any of the platforms; empty if it does on one."""
    way = configuration.options.get("profiling")
    if way is None:
        return ""
    here = judges_here(options.executor)
    reasons = [no_profile_reason(way, judging_platform(name, options.executor), here) for name in options.platforms]
    return "" if "" in reasons else "; ".join(reasons)
