"""The configurations of an experiment: those of its presets, and the user's own, for each model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kforge.execution.executor_names import judges_here
from kforge.spec.experiment_options import OWN_MODELS, ExperimentOptions, Say, own_models
from kforge.spec.judging_platform import judging_platform
from kforge.spec.mistakes import Mistake, Where
from kforge.spec.presets import PRESETS, over
from kforge.spec.profiling_modes import nothing_to_see
from kforge.types import Configuration
from kforge.types.run import BUILTIN


def configurations_of(asked: ExperimentOptions, mistakes: list[Mistake], say: Say) -> tuple[Configuration, ...]:
    """All of them, each once; two of one name that differ are a mistake, which is added to the others."""
    found: dict[str, Configuration] = {}
    for name in asked.presets:
        _check_readers(name, asked, mistakes)
        for configuration in _of_preset(name, asked, mistakes, say):
            _add(found, _for_models(configuration, asked.models), ("presets",), mistakes)
    for name, words in asked.configurations.items():
        own = {key: value for key, value in words.items() if key not in OWN_MODELS}
        configuration = Configuration(name, options=over(asked.words, own))
        where = ("configurations", name)
        _check_profiling(configuration, where, asked, mistakes)
        own_team = own_models(words)
        made = [replace(configuration, models=own_team)] if own_team else _for_models(configuration, asked.models)
        _add(found, made, where, mistakes)
    if mistakes:
        return ()
    if not found:
        alone = [Configuration(model, (model,), over({}, asked.words)) for model in asked.models]
        _check_profiling(alone[0], ("defaults",), asked, mistakes)
        _add(found, alone, ("models",), mistakes)
    _check_taken(found, asked, mistakes)
    return tuple(found.values())


def _check_taken(found: dict[str, Configuration], asked: ExperimentOptions, mistakes: list[Mistake]) -> None:
    """A word that every configuration overrules would change nothing, and its user would not know."""
    for name, value in asked.words.items():
        if value != "" and not any(item.options.get(name) == value for item in found.values()):
            sentence = f"{name} = {value!r} is taken by no configuration: {', '.join(found) or 'there is none'}"
            cure = "; iterative+reference is the preset that has one" if name == "reference" else ""
            mistakes.append(Mistake(("defaults", name), sentence + cure))


def _check_readers(name: str, asked: ExperimentOptions, mistakes: list[Mistake]) -> None:
    unread = PRESETS[name].unread
    if unread and BUILTIN in asked.models:
        sentence = (
            f"{name} takes a language model: the offline agents read no {unread} (name one in models; a configuration "
            f"of your own with model = {BUILTIN!r} may stand beside it)"
        )
        mistakes.append(Mistake(("presets",), sentence))


def _for_models(configuration: Configuration, models: tuple[str, ...]) -> list[Configuration]:
    if len(models) == 1:
        return [replace(configuration, models=models)]
    return [replace(configuration, name=f"{configuration.name} · {model}", models=(model,)) for model in models]


def _add(found: dict[str, Configuration], more: list[Configuration], where: Where, mistakes: list[Mistake]) -> None:
    for configuration in more:
        if found.setdefault(configuration.name, configuration) != configuration:
            mistakes.append(Mistake(where, f"two configurations are called {configuration.name!r}: rename one"))


def _of_preset(name: str, asked: ExperimentOptions, mistakes: list[Mistake], say: Say) -> Iterator[Configuration]:
    """Its configurations, without those that show nothing here: that is said."""
    preset = PRESETS[name]
    possible = []
    reasons = []
    for configuration in preset.configurations(asked.words):
        reason = _shows_nothing(configuration, asked)
        if reason and preset.is_ablation:
            reasons.append(f"{configuration.name} is left out: {reason}")
        else:
            possible.append(configuration)
    references = {configuration.options.get("reference") for configuration in possible}
    if name == "transfer" and references & set(asked.platforms):
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
    configuration: Configuration, where: Where, asked: ExperimentOptions, mistakes: list[Mistake]
) -> None:
    reason = _shows_nothing(configuration, asked)
    if reason:
        mistakes.append(Mistake((*where, "profiling"), f"profiling {configuration.options['profiling']}: {reason}"))


def _shows_nothing(configuration: Configuration, asked: ExperimentOptions) -> str:
    """Why its profiling shows nothing on any of the platforms; empty if it does on one."""
    way = configuration.options.get("profiling")
    if way is None:
        return ""
    here = judges_here(asked.executor)
    reasons = [nothing_to_see(way, judging_platform(name, asked.executor), here) for name in asked.platforms]
    return "" if "" in reasons else "; ".join(reasons)
