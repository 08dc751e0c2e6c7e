"""The words of a configuration: every option of `kforge forge` by its flat name, and `profiling`."""

from __future__ import annotations

import contextlib
import os
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from kforge import registry
from kforge.agents.prompt_maker import check_style
from kforge.errors import UsageError
from kforge.execution.executor_names import LOCAL, judges_here
from kforge.profilers import _names as naming
from kforge.run.team import BUILTIN
from kforge.spec.mistakes import Mistake, Where, near
from kforge.spec.profiling_modes import Way, profilers_for
from kforge.spec.run_spec import Options, judging_platform, named_options
from kforge.types import Configuration, ModelSettings, Plan, Settings

ELSEWHERE = {
    "budget": "is for all of the experiment: it stands at the top",
    "budget_tokens": "is for all of the experiment: it stands at the top",
    "executor": "is for all of the experiment: it stands at the top",
    "platform": "is for all of the experiment: write platforms = [...] at the top",
    "platforms": "is for all of the experiment: it stands at the top",
    "confirm": "is for all of the experiment: it stands at the top",
    "seed": "is what every run has of its own: write seeds = [...] at the top",
    "model": "is for every configuration: write models = [...] at the top, or model in one configuration",
    "models": "is for every configuration: it stands at the top, or in one configuration",
}
"""Words that are no option of a configuration, and where they belong."""
_WHOLE = ("plan", "settings", "model_settings", "limits")
"""Records, whose fields are named instead."""
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}


def _known() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for record in (Settings, ModelSettings, Plan, Options):
        found |= typing.get_type_hints(record)
    found["profilers"] = tuple[str, ...]
    found["profiling"] = Way
    return {name: kind for name, kind in found.items() if name not in (*_WHOLE, *ELSEWHERE)}


WORDS = _known()
"""What may be said of a configuration, and of which kind it is."""


def expected(value: Any, kind: Any) -> str:
    """What should stand there instead of a value that is not of that kind; empty if it is."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        wanted = [expected(value, one) for one in inner if one is not type(None)]
        return "" if "" in wanted else " or ".join(dict.fromkeys(wanted))
    if origin is Literal:
        return "" if value in inner else f"one of {', '.join(map(str, inner))}"
    if origin is tuple:
        words = _KINDS[inner[0]][1].removeprefix("a ")
        right = isinstance(value, (list, tuple)) and not any(expected(item, inner[0]) for item in value)
        return "" if right else f"a list of {words}s"
    if kind not in _KINDS:
        return "" if isinstance(value, kind) else "a text"
    types_, words = _KINDS[kind]
    return "" if isinstance(value, types_) and (kind is bool or not isinstance(value, bool)) else words


def mistakes_in(words: dict[str, Any], where: Where) -> Iterator[Mistake]:
    """All that is wrong with the words of a configuration, or with defaults."""
    right = {}
    for name, value in words.items():
        said = _about(name, value)
        if said:
            yield Mistake((*where, name), said)
        else:
            right[name] = value
    if "profiling" in words and "profilers" in words:
        yield Mistake((*where, "profilers"), "profiling and profilers both say which profilers to use: one must go")
    yield from _refused(right, where)


def _about(name: str, value: Any) -> str:
    if name in WORDS:
        wanted = expected(value, WORDS[name])
        return f"{name} must be {wanted}, and is {value!r}" if wanted else ""
    if name in ELSEWHERE:
        return f"{name} {ELSEWHERE[name]}"
    return f"there is no option {name!r}; {near(name, [*WORDS, 'model', 'models'])}"


def _refused(words: dict[str, Any], where: Where) -> Iterator[Mistake]:
    """What is of the right kind and still makes no sense."""
    said: list[tuple[str, str]] = []
    with _noting("", said):
        _options(words)
    with _noting("style" if "style" in words else "prompts", said):
        check_style(words.get("style", Options.style), words.get("prompts", ""))
    with _noting("search", said):
        registry.load("search", words.get("search", Options.search))
    for name in words.get("profilers", ()):
        with _noting("profilers", said):
            naming.find(name)
    reference = words.get("reference", "")
    # A word alone may be a platform of somebody else's, who shares the store.
    is_path = (os.sep in reference or "." in reference) and "\n" not in reference
    if is_path and not os.path.isfile(reference):
        said.append(("reference", f"reference: there is no file {reference}"))
    for key, sentence in said:
        named = [name for name in words if re.search(rf"\b{name}\b", sentence)]
        yield Mistake((*where, *([key] if key else named[:1])), sentence)


@contextlib.contextmanager
def _noting(key: str, said: list[tuple[str, str]]) -> Iterator[None]:
    """A sentence about that word; empty: about whichever the sentence names."""
    try:
        yield
    except UsageError as error:
        said.append((key, str(error)))


def model_mistake(name: str, words: dict[str, Any]) -> str:
    """Why nobody of that name can write programs; empty if somebody may."""
    kind, colon, rest = name.partition(":")
    if name != BUILTIN and not (kind and colon and rest.strip()):
        return f"{name!r} names no model: write provider:model, command:PROGRAM, mailbox:DIR, replay:FILE or {BUILTIN}"
    if name == BUILTIN and words.get("samples", 1) > 1:
        return "the offline agents always write the same: samples needs a language model"
    return ""


def options_of(configuration: Configuration, platform: str, seed: int = 0, executor: str = LOCAL) -> Options:
    """How to forge under a configuration on a platform. PluginAbsent if it wants pictures and none can be taken."""
    words = dict(configuration.options)
    way = words.get("profiling")
    options = _options({**words, "seed": seed, "executor": executor})
    if way is None:
        return options
    found = judging_platform(platform, executor)
    return replace(options, profilers=profilers_for(way, found, here=judges_here(executor)))


def _options(words: dict[str, Any]) -> Options:
    left = {name: tuple(value) if isinstance(value, list) else value for name, value in words.items()}
    left.pop("profiling", None)
    return named_options(left)
