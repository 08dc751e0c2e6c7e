"""Plug-ins by name: the file name is the key.

    names("platforms")          -> ("cpu", ...)        built in, then third parties' entry points
    load("platforms", "cpu")    -> that module's PLUGIN, a Platform
    load_all("platforms")       -> {"cpu": ...}        those that can be loaded

A built-in plug-in is a module `<name>.py` in its kind's package, which `_KINDS` names, with an attribute `PLUGIN`; or a
package `<name>/` there, which has it in its `platform.py` or other module named after the kind's singular.
Modules whose names begin with `_`, and those in `_NOT_PLUGINS`, are what the plug-ins share.
A third party registers an entry point in the group `kforge.<kind>` that resolves to the same thing, or names such a
package by its path (`./mine`); from then on the folder's name is its name in this process.
Nothing is imported before it is named, and what is loaded is an instance of its kind's class under its own name.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, overload

from kforge.errors import KForgeError, UnknownPlugin

if TYPE_CHECKING:
    from kforge.execution.base import ExecutorPlugin
    from kforge.models.base import ModelPlugin
    from kforge.platforms.base import Platform
    from kforge.profilers.base import Profiler
    from kforge.search.base import Search

KindName = Literal["platforms", "profilers", "search", "models", "executors"]


class _Kind(NamedTuple):
    """One kind of plug-in."""

    singular: str
    package: str
    """Where the built-in ones are."""
    module: str
    """Where its class is. A name and no import: the registry is also loaded where other kinds are not installed."""
    face: str
    """The class that every plug-in of the kind is an instance of."""


_KINDS = {
    "platforms": _Kind("platform", "kforge.platforms", "kforge.platforms.base", "Platform"),
    "profilers": _Kind("profiler", "kforge.profilers", "kforge.profilers.base", "Profiler"),
    "search": _Kind("search", "kforge.search", "kforge.search.base", "Search"),
    "models": _Kind("model", "kforge.models.plugins", "kforge.models.base", "ModelPlugin"),
    "executors": _Kind("executor", "kforge.execution.plugins", "kforge.execution.base", "ExecutorPlugin"),
}
KINDS: tuple[KindName, ...] = get_args(KindName)
_NOT_PLUGINS = ("base", "digest")
"""Modules beside the plug-ins that every user of the kind shares."""
_by_path: dict[tuple[str, str], Any] = {}
"""(kind, name) -> the plug-in of a folder that was named by its path."""


def names(kind: KindName) -> tuple[str, ...]:
    """Every registered name of a kind, built in first, each once."""
    by_path = [name for held, name in _by_path if held == kind]
    return tuple(dict.fromkeys([*_built_in(kind), *_entry_points(kind), *by_path]))


@overload
def load(kind: Literal["platforms"], name: str) -> Platform: ...
@overload
def load(kind: Literal["profilers"], name: str) -> Profiler: ...
@overload
def load(kind: Literal["search"], name: str) -> Search: ...
@overload
def load(kind: Literal["models"], name: str) -> ModelPlugin: ...
@overload
def load(kind: Literal["executors"], name: str) -> ExecutorPlugin: ...
@overload
def load(kind: KindName, name: str) -> Platform | Profiler | Search | ModelPlugin | ExecutorPlugin: ...


def load(kind: KindName, name: str) -> Any:
    """The plug-in of that name. UnknownPlugin lists the names there are, or says what is wrong with a third party's."""
    if not isinstance(name, str):
        raise UnknownPlugin(f"a {_KINDS[kind].singular} is called by its name, not by a {type(name).__name__}")
    if os.sep in name:
        return _load_folder(kind, Path(name))
    if (kind, name) in _by_path:
        return _by_path[kind, name]
    built_in = _built_in(kind)
    if name in built_in:
        target = f"{_KINDS[kind].package}.{name}"
        if built_in[name]:
            target += f".{_KINDS[kind].singular}"
        return importlib.import_module(target).PLUGIN
    point = _entry_points(kind).get(name)
    if point is None:
        known = ", ".join(names(kind)) or "none"
        raise UnknownPlugin(f"no {_KINDS[kind].singular} is called {name!r}; there are: {known}")
    title = f"{_KINDS[kind].singular} {name} ({point.value})"
    try:
        plugin = point.load()
    except Exception as error:
        raise _load_error(title, error) from error
    return _check_plugin(kind, plugin, name, title)


@overload
def load_all(kind: Literal["platforms"]) -> dict[str, Platform]: ...
@overload
def load_all(kind: Literal["models"]) -> dict[str, ModelPlugin]: ...
@overload
def load_all(kind: Literal["executors"]) -> dict[str, ExecutorPlugin]: ...


def load_all(kind: KindName) -> Any:
    """Every plug-in of a kind that can be loaded, by name. A broken one is left out: whoever names it is told why."""
    plugins = {}
    for name in names(kind):
        try:
            plugins[name] = load(kind, name)
        except KForgeError:
            continue
    return plugins


def _load_folder(kind: KindName, folder: Path) -> Any:
    """The plug-in of a package that is not installed; UnknownPlugin says what is missing or in the way."""
    singular, home = _KINDS[kind].singular, folder.expanduser().resolve()
    missing = [name for name in ("__init__.py", f"{singular}.py") if not (home / name).is_file()]
    if missing:
        raise UnknownPlugin(f"{folder} is no {singular}: there is no {' and no '.join(missing)} in it")
    if not home.name.isidentifier() or home.name in _built_in(kind):
        raise UnknownPlugin(
            f"{folder}: a folder's name is its {singular}'s: rename it to a word of letters, digits and _ that is none "
            f"of KForge's own ({', '.join(_built_in(kind))})"
        )
    title = f"{singular} {folder}"
    try:
        plugin = _import_folder(f"{_KINDS[kind].package}.{home.name}", singular, home)
    except Exception as error:
        raise _load_error(title, error) from error
    _by_path[kind, home.name] = _check_plugin(kind, plugin, home.name, title)
    return plugin


def _import_folder(package: str, module: str, home: Path) -> Any:
    """The PLUGIN of a module in a folder, which is imported as a package of that name."""
    spec = importlib.util.spec_from_file_location(package, home / "__init__.py", submodule_search_locations=[str(home)])
    assert spec is not None
    assert spec.loader is not None
    if package not in sys.modules or sys.modules[package].__file__ != spec.origin:
        sys.modules.pop(f"{package}.{module}", None)
        sys.modules[package] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
    return importlib.import_module(f"{package}.{module}").PLUGIN


def _check_plugin(kind: KindName, plugin: Any, name: str, title: str) -> Any:
    """The plug-in, if it is one of that kind under that name."""
    face = getattr(importlib.import_module(_KINDS[kind].module), _KINDS[kind].face)
    if isinstance(plugin, type) or not isinstance(plugin, face):
        raise UnknownPlugin(f"{title} is {plugin!r}: make it an instance of a {_KINDS[kind].module}.{face.__name__}")
    if plugin.name != name:
        raise UnknownPlugin(f"{title} calls itself {plugin.name!r}: set its name to {name!r}")
    return plugin


def _load_error(title: str, error: Exception) -> KForgeError:
    """A plug-in's own sentence stays as it is."""
    if isinstance(error, KForgeError):
        return error
    return UnknownPlugin(f"{title} cannot be loaded: {type(error).__name__}: {error}")


@functools.cache
def _built_in(kind: KindName) -> dict[str, bool]:
    """Name -> is it a package. Read once: the loop asks many times per iteration, and KForge's own files stay."""
    if kind not in _KINDS:
        raise UnknownPlugin(f"no such kind of plug-in: {kind!r}; there are: {', '.join(KINDS)}")
    package = importlib.import_module(_KINDS[kind].package)
    modules = pkgutil.iter_modules(package.__path__)
    return {
        item.name: item.ispkg for item in modules if not item.name.startswith("_") and item.name not in _NOT_PLUGINS
    }


def _entry_points(kind: KindName) -> dict[str, importlib.metadata.EntryPoint]:
    return _entry_points_on(kind, tuple(sys.path))


@functools.cache
def _entry_points_on(kind: KindName, path: tuple[str, ...]) -> dict[str, importlib.metadata.EntryPoint]:
    """Entry points of the packages that are installed on a path; every package has to be read."""
    return {point.name: point for point in importlib.metadata.entry_points(group=f"kforge.{kind}")}
