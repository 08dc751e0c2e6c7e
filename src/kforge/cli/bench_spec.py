"""From what was typed after `kforge bench` to an experiment; mistakes are said at once, all of them, before torch is
loaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.markup import escape

from kforge import jsonable
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.problems.selection import Selection
from kforge.spec.experiment_file import read_experiment
from kforge.spec.experiment_options import ExperimentOptions
from kforge.spec.experiment_spec import make_experiment
from kforge.spec.presets import PRESETS
from kforge.types import Experiment, text_hash

_USUAL, _WITH_REFERENCE = "iterative", "iterative+reference"
"""The preset where none is named."""


def experiment_in_file(file: Path, limit: int | None, typed: Sequence[str]) -> Experiment:
    """The experiment of a file; `typed` are options that a file has keys for, and that were used beside it."""
    if typed:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in typed)
        raise UsageError(f"{file} says what to do; {options} would say it twice: write it there")
    notes = _Notes()
    return replace(read_experiment(file, notes.add, limit), notes=tuple(notes.sentences))


def experiment_of(options: ExperimentOptions) -> Experiment:
    """The experiment of the options; UsageError says what is wrong with it."""
    if not options.places:
        raise UsageError("name an experiment file, or a suite: kforge bench --suite bundled")
    usual = _WITH_REFERENCE if options.defaults.get("reference") is not None else _USUAL
    notes = _Notes()
    experiment = make_experiment(replace(options, presets=options.presets or (usual,)), notes.add)
    return replace(experiment, name=options.name or _name(experiment), notes=tuple(notes.sentences))


def selection(
    levels: str, limit: int | None, only: Sequence[str], without: Sequence[str], draw: int | None
) -> Selection:
    """Which problems of the suite are asked for."""
    try:
        return Selection(whole_numbers(levels, "--levels"), limit, tuple(only), tuple(without), draw)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def list_presets() -> int:
    console = Screen()
    for name, preset in PRESETS.items():
        console.print(f"[bold]{name}[/]  {escape(preset.what)}", highlight=False)
        console.print(f"    {escape(preset.answers)}", style="dim", highlight=False)
    return 0


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers from a text such as 1,2."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise UsageError(f"{option} {text}: whole numbers with commas between them, as in 1,2") from None


def settings(texts: Sequence[str]) -> Mapping[str, Any]:
    """NAME=VALUE each; a value is read as TOML would have it, else as a text."""
    return dict(map(_setting, texts))


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--set {text}: write NAME=VALUE")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value


def _name(experiment: Experiment) -> str:
    """A name that is the same for the same command: what it does, and four digits that tell its options from others."""
    decides = [jsonable.encode(item) for item in experiment.configurations]
    digits = text_hash(repr([decides, sorted(experiment.problems), experiment.seeds]))[:4]
    configurations = ", ".join(item.name for item in experiment.configurations[:3])
    models = ", ".join(dict.fromkeys(name for item in experiment.configurations for name in item.models))
    return f"{experiment.suite}, {', '.join(experiment.platforms)}, {models}, {configurations} ({digits})"


class _Notes:
    """What is left out of an experiment, and what to think of: printed, and kept for the report."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._console = Screen(stderr=True)

    def add(self, sentence: str) -> None:
        self.sentences.append(sentence)
        self._console.print(escape(sentence), style="yellow", highlight=False, soft_wrap=True)
