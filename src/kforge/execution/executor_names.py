"""What executors are called: a plug-in's name, with its argument behind a colon.

`local` is this machine (`local:0,1` some of its devices), `bundle:DIR` a folder that is carried to another. Third
parties have the entry point `kforge.executors`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kforge import registry
from kforge.errors import KForgeError, PluginAbsent, UsageError
from kforge.execution.base import ExecutorPlugin
from kforge.execution.early_compilation import split_option

LOCAL = "local"
BUNDLE = "bundle"


class ExecutorName(NamedTuple):
    """A name, taken apart."""

    plugin: ExecutorPlugin
    argument: str
    """As it means the same everywhere."""

    @property
    def whole(self) -> str:
        """The name, with its argument as it means the same everywhere."""
        return f"{self.plugin.name}:{self.argument}" if self.argument else self.plugin.name


def parse_executor(name: str) -> ExecutorName:
    """The plug-in that a name means, and its argument; UsageError, with the names there are, if it means none."""
    head, _, argument = name.partition(":")
    if head not in registry.names("executors"):
        plugins = registry.load_all("executors").values()
        forms = ", ".join(plugin.form or f"{plugin.name}:..." for plugin in plugins)
        raise UsageError(f"no executor is called {name!r}; there are: {forms}")
    plugin = registry.load("executors", head)
    return ExecutorName(plugin, plugin.canonical(argument))


def available_executor(name: str) -> ExecutorName:
    """`parse_executor`, with PluginAbsent and the cure where no such executor can be opened here."""
    parsed = parse_executor(name)
    reason = parsed.plugin.unavailable_reason()
    if reason:
        raise PluginAbsent(f"executor {parsed.plugin.name}: {reason}")
    return parsed


def whole_name(name: str) -> str:
    """The name with the whole path of its folder, so that it means the same everywhere; UsageError if it is none."""
    return parse_executor(name).whole


def judges_here(name: str) -> bool:
    """Whether programs are judged on this machine."""
    return parse_executor(name).plugin.judges_here


def leaves_jobs(name: str) -> bool:
    """Whether reports may come later than the run that asks for them; not for what is not installed here."""
    try:
        return parse_executor(name).plugin.leaves_jobs
    except KForgeError:
        return False


def check_executor(name: str, platform: str) -> None:
    """Before a run: UsageError or PluginAbsent, with what to do, where no program for the platform could be judged."""
    plugin, argument = available_executor(name)
    reason = registry.load("platforms", platform).unavailable_reason() if plugin.judges_here else ""
    if reason:
        raise PluginAbsent(f"platform {platform}: {reason}")
    plugin.check(argument, platform)


def folder_of(name: str) -> Path | None:
    """A bundle's folder; None for any other executor."""
    plugin, argument = parse_executor(name)
    return Path(split_option(argument)[0]) if plugin.name == BUNDLE else None
