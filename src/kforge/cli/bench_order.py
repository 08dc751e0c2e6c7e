"""What was asked of `kforge bench`, checked before torch is loaded: mistakes are said at once, and all of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.markup import escape

from kforge import jsonable
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.execution.executor_names import LOCAL
from kforge.problems.selection import Selection
from kforge.run.team import BUILTIN
from kforge.spec.experiment_file import read_experiment
from kforge.spec.experiment_options import ExperimentOptions
from kforge.spec.experiment_spec import make_experiment
from kforge.spec.presets import PRESETS
from kforge.types import Experiment, text_hash

_USUAL, _WITH_REFERENCE = "iterative", "iterative+reference"
"""The preset where none is named."""


@dataclass(frozen=True)
class BenchOptions:
    """The options that say what to do, as they were typed."""

    suite: tuple[str, ...] = ()
    levels: str = ""
    limit: int | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    options: dict[str, Any] | None = None
    settings: tuple[str, ...] = ()
    """NAME=VALUE each."""
    seeds: str = ""
    budget: float | None = None
    budget_tokens: int | None = None
    confirm: bool | None = None
    name: str = ""
    executor: str = ""


@dataclass(frozen=True)
class BenchCommand:
    """What was asked for on the command line."""

    experiment: Experiment
    store: str
    cache: str = ""
    concurrency: int = 8
    per_minute: int | None = None
    parallel: int = 0
    fresh: bool = False
    as_json: bool = False
    html: Path | None = None
    """Where to write the report."""
    offline_by_default: bool = False
    """No model was named."""


def order_of(file: Path | None, words: BenchOptions) -> Experiment:
    """The experiment of a file, or of the options; UsageError says what is wrong with it."""
    console = Screen(stderr=True)
    said: list[str] = []

    def say(sentence: str) -> None:
        said.append(sentence)
        console.print(escape(sentence), style="yellow", highlight=False, soft_wrap=True)

    given = {name: value for name, value in (words.options or {}).items() if value is not None}
    if file is not None:
        typed = _typed(replace(words, limit=None), given)
        if typed:
            raise UsageError(f"{file} says what to do; {', '.join(typed)} would say it twice: write it there")
        made = read_experiment(file, say, words.limit)
        return replace(made, notes=tuple(said))
    if not words.suite:
        raise UsageError("name an experiment file, or a suite: kforge bench --suite bundled")
    asked = ExperimentOptions(
        places=words.suite,
        name=words.name,
        choice=Selection(_numbers(words.levels, "--levels"), words.limit, words.only, words.without),
        platforms=words.platforms or ("cpu",),
        models=words.models or (BUILTIN,),
        presets=words.presets or (_WITH_REFERENCE if "reference" in given else _USUAL,),
        words={**given, **dict(map(_setting, words.settings))},
        seeds=_numbers(words.seeds, "--seeds") or (0,),
        budget=words.budget,
        budget_tokens=words.budget_tokens,
        executor=words.executor or LOCAL,
        confirm=words.confirm is not False,
    )
    made = make_experiment(asked, say)
    return replace(made, name=words.name or _name(made), notes=tuple(said))


def list_presets() -> int:
    console = Screen()
    for name, preset in PRESETS.items():
        console.print(f"[bold]{name}[/]  {escape(preset.what)}", highlight=False)
        console.print(f"    {escape(preset.answers)}", style="dim", highlight=False)
    return 0


def _typed(words: BenchOptions, given: dict[str, Any]) -> list[str]:
    """Options that were used and that a file has keys for."""
    used = [name for name, value in vars(words).items() if value not in ((), "", None) and name != "options"]
    spelled = {"platforms": "platform", "models": "model", "presets": "preset", "settings": "set"}
    return [f"--{spelled.get(name, name).replace('_', '-')}" for name in (*used, *given)]


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise UsageError(f"{option} {text}: whole numbers with commas between them, as in 1,2") from None


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE; the value as TOML would have it, else as a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--set {text}: write NAME=VALUE")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value


def _name(experiment: Experiment) -> str:
    """The same for the same command: what it does, and four digits that tell its options from others."""
    decides = [jsonable.encode(item) for item in experiment.configurations]
    digits = text_hash(repr([decides, sorted(experiment.problems), experiment.seeds]))[:4]
    configurations = ", ".join(item.name for item in experiment.configurations[:3])
    models = ", ".join(dict.fromkeys(name for item in experiment.configurations for name in item.models))
    return f"{experiment.suite}, {', '.join(experiment.platforms)}, {models}, {configurations} ({digits})"
