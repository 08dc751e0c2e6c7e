"""From what a user calls a profiler to the profiler: `trace-view`, `trace_view`, `screenshot:COMMAND`."""

from __future__ import annotations

from kforge import registry
from kforge.profilers.base import Profiler


def plain_name(name: str) -> str:
    """The name as the registry knows it; what stands behind a colon is kept."""
    head, colon, argument = name.partition(":")
    return head.strip().replace("-", "_") + colon + argument


def find(name: str) -> Profiler:
    """The plug-in of that name; UnknownPlugin if there is none, or if it takes nothing behind a colon."""
    head, colon, argument = plain_name(name).partition(":")
    tool = registry.load("profilers", head)
    if not colon:
        return tool
    return tool.with_argument(argument)
