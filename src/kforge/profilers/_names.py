"""From what a user calls a profiler to the profiler: `trace-view`, `trace_view`, `screenshot:COMMAND`."""

from __future__ import annotations

from typing import Any

from kforge import registry
from kforge.errors import UnknownPlugin


def plain(name: str) -> str:
    """The name as the registry knows it; what stands behind a colon is kept."""
    head, colon, argument = name.partition(":")
    return head.strip().replace("-", "_") + colon + argument


def find(name: str) -> Any:
    """The plug-in of that name; UnknownPlugin if there is none, or if it takes nothing behind a colon."""
    head, colon, argument = plain(name).partition(":")
    tool = registry.load("profilers", head)
    if not colon:
        return tool
    if not hasattr(tool, "with_argument"):
        raise UnknownPlugin(f"the profiler {head} takes nothing behind a colon; write --profiler {head}")
    return tool.with_argument(argument)
