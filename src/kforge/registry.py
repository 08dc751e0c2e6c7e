"""Plug-ins by name: the file name is the key.

    names("platforms")          -> ("cpu", ...)        built in, then third parties' entry points
    load("platforms", "cpu")    -> that module's PLUGIN

A built-in plug-in is a module `kforge/<kind>/<name>.py` or a package `kforge/<kind>/<name>/` whose
`platform.py` (or other module named after the kind's singular) carries an attribute `PLUGIN`.
A third party registers an entry point in the group `kforge.<kind>` that resolves to the same thing.
Nothing is imported before it is named.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from typing import Any

from kforge.errors import UnknownPlugin

_NOT_PLUGINS = ("face", "digest")
"""Modules beside the plug-ins that every user of the kind shares."""

KINDS = ("platforms", "profilers", "search")


def names(kind: str) -> tuple[str, ...]:
    """Every registered name of a kind, built in first, each once."""
    return tuple(dict.fromkeys([*_built_in(kind), *_entry_points(kind)]))


def load(kind: str, name: str) -> Any:
    """The plug-in object of that name; UnknownPlugin lists the names there are."""
    built_in = _built_in(kind)
    if name in built_in:
        target = f"kforge.{kind}.{name}"
        if built_in[name]:
            target += f".{kind.removesuffix('s')}"
        return importlib.import_module(target).PLUGIN
    points = _entry_points(kind)
    if name in points:
        return points[name].load()
    known = ", ".join(names(kind)) or "none"
    raise UnknownPlugin(f"no {kind.removesuffix('s')} is called {name!r}; there are: {known}")


def _built_in(kind: str) -> dict[str, bool]:
    """Name -> is it a package."""
    if kind not in KINDS:
        raise UnknownPlugin(f"no such kind of plug-in: {kind!r}; there are: {', '.join(KINDS)}")
    package = importlib.import_module(f"kforge.{kind}")
    found = pkgutil.iter_modules(package.__path__)
    return {item.name: item.ispkg for item in found if not item.name.startswith("_") and item.name not in _NOT_PLUGINS}


def _entry_points(kind: str) -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=f"kforge.{kind}")}
