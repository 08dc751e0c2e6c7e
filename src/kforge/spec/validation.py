"""What is wrong with the options of a run: all of it, found before anything is opened and before torch is loaded."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kforge import registry
from kforge.agents.prompt_maker import check_style
from kforge.errors import KForgeError
from kforge.execution.executor_names import parse_executor
from kforge.profilers import _names as profiler_names
from kforge.spec.mistakes import Mistake, Where, suggest
from kforge.spec.option_schema import expected_kind
from kforge.spec.run_options import OPTIONS, spec_fields
from kforge.types import ModelSettings, Plan, RunSpec
from kforge.types.run import BUILTIN, NO_ANALYST

_SEPARATE = {
    "budget": "is for all of the experiment: it stands at the top",
    "budget_tokens": "is for all of the experiment: it stands at the top",
    "executor": "is for all of the experiment: it stands at the top",
    "platform": "is for all of the experiment: write platforms = [...] at the top",
    "platforms": "is for all of the experiment: it stands at the top",
    "confirm": "is for all of the experiment: it stands at the top",
    "compile_winners": "is for all of the experiment: it stands at the top",
    "seed": "is what every run has of its own: write seeds = [...] at the top",
    "model": "is for every configuration: write models = [...] at the top, or model in one configuration",
    "models": "is for every configuration: it stands at the top, or in one configuration",
}
"""What is no option of a configuration, and where it belongs."""
_WHOLE = ("plan", "settings", "model_settings", "limits")
"""Records, whose fields a configuration names instead."""
CONFIGURATION_OPTIONS = {
    name: kind for name, kind in OPTIONS.items() if name not in _WHOLE and name not in _SEPARATE
} | {"profilers": tuple[str, ...]}
"""What may be said of a configuration, and of which kind it is."""


def option_mistakes(options: Mapping[str, Any]) -> Iterator[Mistake]:
    """What is wrong with the options of one run."""
    return _mistakes(options, (), OPTIONS, {})


def configuration_mistakes(options: Mapping[str, Any], where: Where) -> Iterator[Mistake]:
    """What is wrong with the options of an experiment's configuration, or with its defaults."""
    return _mistakes(options, where, CONFIGURATION_OPTIONS, _SEPARATE)


def model_mistakes(models: Sequence[str], options: Mapping[str, Any]) -> Iterator[Mistake]:
    """What is wrong with who is to write and to advise; options of the wrong kind are somebody else's mistake."""
    if not models or not all(isinstance(name, str) and name for name in models):
        yield Mistake(("models",), "name a model: provider:model, command:PROGRAM, mailbox:DIR, replay:FILE or builtin")
        return
    plan, settings = options.get("plan"), options.get("model_settings")
    samples = plan.samples if isinstance(plan, Plan) else _value_or_default(options, "samples", 1)
    base_url = settings.base_url if isinstance(settings, ModelSettings) else _value_or_default(options, "base_url", "")
    analyst = _value_or_default(options, "analyst_model", "")
    chains = [models[chain % len(models)] for chain in range(max(samples, len(models)))]
    if chains.count(BUILTIN) > 1:
        sentence = "the offline agents always write the same: samples needs a language model"
        yield Mistake(("samples",), sentence)
    if analyst == BUILTIN and set(models) != {BUILTIN}:
        sentence = "the offline analyst advises only the offline writer; name another --analyst-model, or none"
        yield Mistake(("analyst_model",), sentence)
    if analyst not in ("", BUILTIN, NO_ANALYST) and BUILTIN in models:
        sentence = "the offline writer follows only the offline analyst; leave --analyst-model out"
        yield Mistake(("analyst_model",), sentence)
    hosts = {name.partition(":")[0] for name in (*models, analyst) if name and name not in (BUILTIN, NO_ANALYST)}
    if base_url and len(hosts) > 1:
        yield Mistake(("base_url",), "--base-url is one server, and the models named are of several providers")


def _value_or_default(options: Mapping[str, Any], name: str, default: Any) -> Any:
    """An option's value, if it is of the right kind; else the default."""
    value = options.get(name, default)
    return default if expected_kind(value, OPTIONS[name]) else value


def model_name_mistake(name: str) -> str:
    """Why a name can be no model's; empty if it can. Whether there is such a model shows when it is opened."""
    kind, colon, rest = name.partition(":")
    if name == BUILTIN or (kind and colon and rest.strip()):
        return ""
    return f"{name!r} names no model: write provider:model, command:PROGRAM, mailbox:DIR, replay:FILE or {BUILTIN}"


def place_mistakes(platform: str, executor: str) -> Iterator[Mistake]:
    """What is wrong with where programs are to run; whether they can run there is for `prepare` to find out."""
    try:
        registry.load("platforms", platform)
    except KForgeError as error:
        yield Mistake(("platform",), str(error), error)
    try:
        parse_executor(executor)
    except KForgeError as error:
        yield Mistake(("executor",), str(error), error)


def _mistakes(
    options: Mapping[str, Any], where: Where, known: Mapping[str, Any], separate: Mapping[str, str]
) -> Iterator[Mistake]:
    valid = {}
    for name, value in options.items():
        sentence = _mistake_in(name, value, known, separate)
        if sentence:
            yield Mistake((*where, name), sentence)
        else:
            valid[name] = value
    if options.get("profiling") is not None and options.get("profilers") is not None:
        yield Mistake((*where, "profilers"), "profiling and profilers both say which profilers to use: one must go")
    yield from _value_mistakes(valid, where)


def _mistake_in(name: str, value: Any, known: Mapping[str, Any], separate: Mapping[str, str]) -> str:
    if name in known:
        wanted = expected_kind(value, known[name])
        return f"{name} must be {wanted}, and is {value!r}" if wanted else ""
    if name in separate:
        return f"{name} {separate[name]}"
    return (
        f"there is no option {name!r}; {suggest(name, [*known, *(key for key in separate if key.startswith('model'))])}"
    )


def _value_mistakes(options: Mapping[str, Any], where: Where) -> Iterator[Mistake]:
    """Mistakes in options of the right kind: values that still make no sense."""
    sentences: list[tuple[str, str]] = []
    with _collect_errors("", sentences):
        spec_fields(options)
    with _collect_errors("style" if "style" in options else "prompts", sentences):
        check_style(options.get("style", RunSpec.style), options.get("prompts", ""))
    with _collect_errors("search", sentences):
        registry.load("search", options.get("search", RunSpec.search))
    for name in options.get("profilers") or ():
        with _collect_errors("profilers", sentences):
            profiler_names.find(name)
    reference = str(options.get("reference", ""))
    # A word alone may be a platform of somebody else's, who shares the store.
    is_path = (os.sep in reference or "." in reference) and "\n" not in reference
    if is_path and not os.path.isfile(reference):
        sentences.append(("reference", f"reference: there is no file {reference}"))
    for key, sentence in sentences:
        named = [name for name in options if re.search(rf"\b{name}\b", sentence)]
        yield Mistake((*where, *([key] if key else named[:1])), sentence)


@contextlib.contextmanager
def _collect_errors(key: str, sentences: list[tuple[str, str]]) -> Iterator[None]:
    """Notes an error as a sentence about an option; with an empty key, about whichever the sentence names."""
    try:
        yield
    except (KForgeError, TypeError, ValueError) as error:
        sentences.append((key, str(error)))
