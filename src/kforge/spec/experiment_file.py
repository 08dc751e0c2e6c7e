"""Experiment files: TOML, read and checked as a whole (docs/experiments.md has every key)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kforge import registry
from kforge.errors import UsageError
from kforge.problems.selection import Selection
from kforge.spec.experiment_options import OWN_MODELS, ExperimentOptions, Say, say_nothing
from kforge.spec.experiment_spec import examine
from kforge.spec.mistakes import Mistake, Mistaken, Where, suggest
from kforge.spec.option_schema import expected_kind
from kforge.spec.validation import CONFIGURATION_OPTIONS
from kforge.types import Experiment

_SEVERAL = str | tuple[str, ...]
KEYS: dict[str, Any] = {
    "name": str,
    "suite": _SEVERAL,
    "levels": tuple[int, ...],
    "limit": int,
    "draw": int,
    "only": _SEVERAL,
    "without": _SEVERAL,
    "platforms": _SEVERAL,
    "models": _SEVERAL,
    "presets": _SEVERAL,
    "seeds": tuple[int, ...],
    "budget": float,
    "budget_tokens": int,
    "executor": str,
    "confirm": bool,
    "compile_winners": bool,
}
"""What stands at the top of a file, and of which kind it is."""
_OF_THE_SUITE = {"suite", "levels", "only", "without"}
_TABLES = ("defaults", "configurations")
_ALSO = {"platform": "platforms", "model": "models", "preset": "presets", "seed": "seeds", "level": "levels"}
"""What is easily written instead."""
_HEADER = re.compile(r"\s*\[\s*(?P<path>[^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*(?P<path>[\w"'][^=\[\]{}#]*?)\s*=""")
_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^."'\s]+))\s*\.?""")


def read_experiment(path: str | Path, say: Say = say_nothing, limit: int | None = None) -> Experiment:
    """The experiment of a file; UsageError lists all that is wrong, with lines. `say` is told what is left out.

    With a `limit` it is a smaller one, for a try: it has a name of its own.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        suite = "" if file.exists() or file.suffix == ".toml" else f" (for problems: kforge bench --suite {path})"
        raise UsageError(f"{path}: cannot be read: {error.strerror}{suite}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    if limit is not None:
        data |= {"limit": limit, "name": f"{data.get('name', file.stem)}, {limit} problems"}
    mistakes = list(_mistakes(data))
    wrong = {mistake.where for mistake in mistakes}
    # What is wrong already is left out for now, so that the rest can be looked at.
    more, experiment = examine(_make_options(_drop_wrong_keys(data, wrong), file), say_nothing if mistakes else say)
    unheard = {where[0] for where in wrong if len(where) == 1} | (set() if "suite" in data else _OF_THE_SUITE)
    mistakes += [mistake for mistake in more if mistake.where[0] not in unheard]
    if mistakes or experiment is None:
        raise Mistaken(mistakes, str(path), lines_of(text))
    return experiment


def lines_of(text: str) -> dict[Where, int]:
    """The line of each key and table, as far as a look at each line can tell."""
    lines: dict[Where, int] = {}
    table: Where = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _parts(header["path"])
            lines.setdefault(table, number)
        elif key:
            lines.setdefault(table + _parts(key["path"]), number)
    return lines


def _parts(path: str) -> Where:
    return tuple(next(filter(None, match.groups()), "") for match in _PART.finditer(path))


def _drop_wrong_keys(data: dict[str, Any], wrong: set[Where], at: Where = ()) -> dict[str, Any]:
    right = {key: value for key, value in data.items() if (*at, key) not in wrong}
    return {
        key: _drop_wrong_keys(val, wrong, (*at, key)) if isinstance(val, dict) else val for key, val in right.items()
    }


def _mistakes(data: dict[str, Any]) -> Iterator[Mistake]:
    """Keys that are unknown or of the wrong kind; what they say is looked at later."""
    for key, value in data.items():
        if key in _TABLES:
            if not isinstance(value, dict):
                yield Mistake((key,), f"{key} must be a table: [{key}]")
        elif key not in KEYS:
            yield Mistake((key,), _unknown_key_message(key))
        elif expected_kind(value, KEYS[key]):
            yield Mistake((key,), f"{key} must be {expected_kind(value, KEYS[key])}, and is {value!r}")
    if "suite" not in data and not any("mean suite" in suggest(key, KEYS) for key in data):
        yield Mistake(("suite",), 'suite is missing: write suite = "bundled", "kernelbench:PATH" or a folder')
    if isinstance(limit := data.get("limit"), int) and limit < 1:
        yield Mistake(("limit",), "limit must be at least 1")
    if "draw" in data and "limit" not in data:
        yield Mistake(("draw",), "draw needs a limit: without one all problems are taken, and there is nothing to draw")
    if data.get("compile_winners") and data.get("confirm") is False:
        yield Mistake(("compile_winners",), "compile_winners is done when a winner is judged once more: confirm = true")
    tables = data.get("configurations", {})
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if not name:
            yield Mistake(("configurations", name), "a configuration needs a name")
        if not isinstance(table, dict):
            yield Mistake(("configurations", name), f"a configuration is a table: [configurations.{name}]")
            continue
        for key in OWN_MODELS:
            if key in table and (not table[key] or expected_kind(table[key], _SEVERAL)):
                yield Mistake(("configurations", name, key), f"{key} must be a text or a list of texts")


def _unknown_key_message(key: str) -> str:
    if key in _ALSO:
        return f"there is no key {key!r} at the top; it is called {_ALSO[key]}"
    if key in CONFIGURATION_OPTIONS:
        return f"{key} is an option of configurations: it stands in [defaults], or in one of them"
    return f"there is no key {key!r}; {suggest(key, [*KEYS, *_TABLES])}"


def _make_options(data: dict[str, Any], file: Path) -> ExperimentOptions:
    folder = file.resolve().parent
    one = ("budget", "budget_tokens", "executor", "confirm", "compile_winners")
    several = ("platforms", "models", "presets", "seeds")
    given: dict[str, Any] = {key: data[key] for key in one if key in data}
    given |= {key: _as_tuple(data[key]) for key in several if key in data}
    return ExperimentOptions(
        places=_as_tuple(data.get("suite", "bundled")),
        folder=folder,
        name=data.get("name", file.stem),
        choice=Selection(
            _as_tuple(data.get("levels", ())),
            data.get("limit"),
            _as_tuple(data.get("only", ())),
            _as_tuple(data.get("without", ())),
            data.get("draw") if "limit" in data else None,
        ),
        defaults=_resolve_paths(data.get("defaults", {}), folder),
        configurations={name: _resolve_paths(table, folder) for name, table in data.get("configurations", {}).items()},
        **given,
    )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _resolve_paths(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Files that options name are looked for beside the experiment."""
    resolved = dict(options)
    reference, prompts = options.get("reference"), options.get("prompts")
    if isinstance(reference, str) and reference not in registry.names("platforms") and (folder / reference).is_file():
        resolved["reference"] = str(folder / reference)
    if isinstance(prompts, str) and prompts:
        resolved["prompts"] = str(folder / prompts)
    return resolved
