"""Probes in a runner: small modules, sent as text by the judge, that look at the program from inside.

A probe is trusted code in an untrusted place: the program beside it may have changed anything it uses.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Subject:
    """What a probe is given to look at."""

    call: Callable[[], Any]
    """One call of the module, on the next set of inputs."""
    module: Any
    arguments: list[list[Any]]
    """Every set of inputs."""
    home: str
    """The runner's private folder."""


class Probes:
    """The probes sent so far, each executed once."""

    def __init__(self) -> None:
        self._modules: dict[str, types.ModuleType] = {}

    def prepare(self, source: str, home: str) -> None:
        """Let a probe get ready before the program is imported; it need not have anything to do then."""
        function = getattr(self._module(source), "prepare", None)
        if function is not None:
            function(home, {})

    def look(self, source: str, subject: Subject, request: dict[str, Any]) -> Any:
        return self._module(source).look(subject, request)

    def _module(self, source: str) -> types.ModuleType:
        if source not in self._modules:
            module = types.ModuleType(f"kforge_probe_{len(self._modules)}")
            exec(compile(source, f"<{module.__name__}>", "exec"), module.__dict__)
            self._modules[source] = module
        return self._modules[source]
