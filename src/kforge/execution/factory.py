"""From an executor's name to the executor. Nothing is started before the first job."""

from __future__ import annotations

from kforge.execution.base import Executor
from kforge.execution.executor_names import available_executor


def open_executor(name: str, platform: str) -> Executor:
    """`local`, `bundle:DIR` or a third party's; UsageError for anything else, PluginAbsent for what it lacks here."""
    plugin, argument = available_executor(name)
    return plugin.open(argument, platform)
