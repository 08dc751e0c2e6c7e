"""What is asked of a profiler, and what it is given to look at.

A profiler has two halves. `collect` runs in the judge and is trusted. Where it must look at the program from inside, a
second file, its probe, is sent into a runner as text and run there: the standard library and torch are all it may
import. What a probe answers about a candidate is evidence, not truth.

    prepare(home, request)      before the program is imported; optional
    look(subject, request)      afterwards: `subject.call()` makes one call, `.module`, `.arguments`, `.home` are there
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from kforge.errors import UnknownPlugin
from kforge.platforms.base import Platform
from kforge.profilers._facts import Facts
from kforge.profilers._signal_rule import SignalRule
from kforge.types import Problem, Profile, Verdict

__all__ = [
    "Facts",
    "NothingSeen",
    "Profiler",
    "ProfilingContext",
    "SignalRule",
    "StandaloneRun",
    "Subject",
]

Subject = Literal["candidate", "reference", "machine"]
"""Whom a probe looks at: the candidate in its sandbox, the reference in a trusted runner, or only the machine."""


class NothingSeen(Exception):
    """There is nothing to report; the message says why."""


@dataclass(frozen=True)
class StandaloneRun:
    """What came of running a candidate in a process of its own. All of it is the candidate's word."""

    status: int
    """The exit status of the command."""
    output: str
    """What was written to stdout."""
    errors: str
    """The end of what was written to stderr."""
    files: dict[str, bytes] = field(default_factory=dict)
    """The files that were asked for, by their path in the private folder."""
    seconds: float = 0.0
    """Wall clock, start to end."""


class ProfilingContext(Protocol):
    """A correct, timed candidate on its problem, held still to be looked at."""

    @property
    def problem(self) -> Problem: ...

    @property
    def verdict(self) -> Verdict: ...

    @property
    def platform(self) -> Platform: ...

    @property
    def earlier(self) -> Mapping[str, Profile]:
        """What the profilers before this one saw, by their names; of those that run the program alone, none."""

    @property
    def working_bytes(self) -> int:
        """Memory that the timed calls go round in: every input set with its outputs, and the parameters."""

    @property
    def process_id(self) -> int:
        """The process that holds the candidate, as this machine counts it; it is started if need be."""

    def ask(self, request: dict[str, Any], of: Subject = "candidate") -> dict[str, Any]:
        """What this profiler's probe answers there; NothingSeen if it gives no answer."""

    def standalone(
        self, command: tuple[str, ...], files: tuple[str, ...] = (), seconds: float = 120.0
    ) -> StandaloneRun:
        """Run the candidate in a process of its own, in a sandbox, behind a command.

        That is `command`, then python and a program that loads the candidate, warms it up with two calls, and makes one
        call in the platform's `profiled_range` (on an NVIDIA GPU: between cudaProfilerStart and cudaProfilerStop). It
        leaves the device code it saw in `cubins/` of its private folder, which `{home}` in a word of the command stands
        for. `files` name, relative to that folder, what is to come back; a trailing * matches.
        """


class Profiler:
    """A tool that can say where a program's time goes."""

    name = ""
    """The file's name."""
    what = ""
    """What it shows, in a few words."""
    probe_file = ""
    """The file beside the plug-in that runs in a runner; empty if it needs none."""
    pictures = False
    """Whether it shows pictures, and not only text."""
    alone = False
    """Whether all it looks at is the program's calls in a process of their own (`context.standalone`): the process is
    then started while others use the device, and has it to itself for the calls.
    """
    rules: tuple[SignalRule, ...] = ()
    """How its metrics become signals of the digest; none where its text and KForge's own rules say all."""

    def unavailable_reason(self) -> str:
        """Why it cannot be used here, with the cure; empty if it can."""
        raise NotImplementedError

    def collect(self, context: ProfilingContext) -> Profile:
        """What it saw. NothingSeen, or any other exception, becomes a profile that says why it is absent."""
        raise NothingSeen(f"{self.name} is not collected on platform {context.platform.name}")

    def with_argument(self, argument: str) -> Profiler:
        """The profiler with what a user wrote behind a colon; UnknownPlugin, a UsageError, where it takes nothing."""
        raise UnknownPlugin(f"the profiler {self.name} takes nothing behind a colon; write --profiler {self.name}")

    def probe(self) -> str:
        """The text of its probe; empty if it has none."""
        if not self.probe_file:
            return ""
        home = Path(str(sys.modules[type(self).__module__].__file__)).parent
        return (home / self.probe_file).read_text(encoding="utf-8")
