"""Plug-ins by name: the file name is the key.

    names("platforms")          -> ("cpu", ...)        built in, then third parties' entry points
    load("platforms", "cpu")    -> that module's PLUGIN

A built-in plug-in is a module `kforge/<kind>/<name>.py` or a package `kforge/<kind>/<name>/` whose
`platform.py` (or other module named after the kind's singular) carries an attribute `PLUGIN`.
A third party registers an entry point in the group `kforge.<kind>` that resolves to the same thing, or names such a
package by its path (`./mine`); from then on the folder's name is its name in this process.
Nothing is imported before it is named.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import sys
from pathlib import Path
from typing import Any

from kforge.errors import UnknownPlugin

_NOT_PLUGINS = ("base", "digest")
"""Modules beside the plug-ins that every user of the kind shares."""

KINDS = ("platforms", "profilers", "search")
_by_path: dict[tuple[str, str], Any] = {}
"""(kind, name) -> the plug-in of a folder that was named by its path."""


def names(kind: str) -> tuple[str, ...]:
    """Every registered name of a kind, built in first, each once."""
    by_path = [name for held, name in _by_path if held == kind]
    return tuple(dict.fromkeys([*_built_in(kind), *_entry_points(kind), *by_path]))


def load(kind: str, name: str) -> Any:
    """The plug-in object of that name; UnknownPlugin lists the names there are."""
    if not isinstance(name, str):
        raise UnknownPlugin(f"a {kind.removesuffix('s')} is called by its name, not by a {type(name).__name__}")
    if os.sep in name:
        return _load_folder(kind, Path(name))
    if (kind, name) in _by_path:
        return _by_path[kind, name]
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


def _load_folder(kind: str, folder: Path) -> Any:
    """The plug-in of a package that is not installed; UnknownPlugin says what is missing or in the way."""
    singular, home = kind.removesuffix("s"), folder.expanduser().resolve()
    missing = [name for name in ("__init__.py", f"{singular}.py") if not (home / name).is_file()]
    if missing:
        raise UnknownPlugin(f"{folder} is no {singular}: there is no {' and no '.join(missing)} in it")
    if not home.name.isidentifier() or home.name in _built_in(kind):
        raise UnknownPlugin(
            f"{folder}: a folder's name is its {singular}'s: rename it to a word of letters, digits and _ that is none "
            f"of KForge's own ({', '.join(_built_in(kind))})"
        )
    package = f"kforge.{kind}.{home.name}"
    spec = importlib.util.spec_from_file_location(package, home / "__init__.py", submodule_search_locations=[str(home)])
    assert spec is not None
    assert spec.loader is not None
    if package not in sys.modules or sys.modules[package].__file__ != spec.origin:
        sys.modules.pop(f"{package}.{singular}", None)
        sys.modules[package] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
    _by_path[kind, home.name] = importlib.import_module(f"{package}.{singular}").PLUGIN
    return _by_path[kind, home.name]


def _built_in(kind: str) -> dict[str, bool]:
    """Name -> is it a package."""
    if kind not in KINDS:
        raise UnknownPlugin(f"no such kind of plug-in: {kind!r}; there are: {', '.join(KINDS)}")
    package = importlib.import_module(f"kforge.{kind}")
    found = pkgutil.iter_modules(package.__path__)
    return {item.name: item.ispkg for item in found if not item.name.startswith("_") and item.name not in _NOT_PLUGINS}


def _entry_points(kind: str) -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=f"kforge.{kind}")}
