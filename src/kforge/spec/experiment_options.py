"""What was asked of an experiment, as it came: from the command line or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kforge.execution.executor_names import LOCAL
from kforge.problems.selection import Selection
from kforge.types.run import BUILTIN

Say = Callable[[str], None]
"""Told what is left out, and what to think of."""
OWN_MODELS = ("model", "models")
"""How a configuration names who writes; several share the chains of each run."""


def say_nothing(_: str) -> None:
    """Say nothing: nobody listens."""


@dataclass(frozen=True)
class ExperimentOptions:
    """What was asked for, on the command line or in a file; nothing of it is checked yet."""

    places: tuple[str, ...]
    """Where the problems are."""
    folder: Path = Path()
    """Where relative places start."""
    name: str = ""
    """Empty: the places and the platforms."""
    choice: Selection = Selection()
    platforms: tuple[str, ...] = ("cpu",)
    models: tuple[str, ...] = (BUILTIN,)
    """Every configuration is taken for each, but those that name their own."""
    presets: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    """Options of every configuration, by flat names; None is not said."""
    configurations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Configurations of the user's own, by name. Without them and without presets there is one, called as its model."""
    seeds: tuple[int, ...] = (0,)
    budget: float | None = None
    """Dollars for everything together."""
    budget_tokens: int | None = None
    executor: str = LOCAL
    confirm: bool = True
    compile_winners: bool = False


def own_models(options: dict[str, Any]) -> tuple[str, ...]:
    """Who writes under a configuration that says so itself; empty if it does not."""
    named = options.get("models", options.get("model", ()))
    return (named,) if isinstance(named, str) else tuple(named)
