"""What each configuration is: who writes, and what is set, spelled as an experiment's file spells it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kforge.reports.findings import StudyFindings
from kforge.reports.pictures import series

DEFAULTS = "all as by default"
"""What is said of a configuration that sets nothing."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class ConfigurationText:
    """One configuration."""

    name: str
    series: int | None
    """Its colour in charts; None where no trial of it is in the report."""
    models: tuple[str, ...]
    options: tuple[str, ...]
    """The options, each as name = value."""


def configuration_texts(findings: StudyFindings) -> list[ConfigurationText]:
    """The configurations in the study's order; one that is there twice is listed once."""
    numbers = series(findings)
    every = [
        ConfigurationText(
            item.name, numbers.get(item.name), item.models, tuple(_assignment(*pair) for pair in item.options.items())
        )
        for item in findings.study.configurations
    ]
    return list(dict.fromkeys(every))


def as_toml(value: Any) -> str:
    """A value as TOML has it; what TOML has no word for is a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, Mapping):
        inside = ", ".join(_assignment(str(name), item) for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _assignment(name: str, value: Any) -> str:
    return f"{name if _BARE.fullmatch(name) else as_toml(name)} = {as_toml(value)}"
