"""What is asked of an executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kforge.errors import KForgeError
from kforge.types import Job, Report

Tell = Callable[[str], None]
"""Told what is being done, in a few words."""


class ReportAwaited(KForgeError):
    """The job is in other hands, and there is no report yet: no fault, and the same job may be run again later."""


class Executor(Protocol):
    """Carries out jobs, each exactly once."""

    @property
    def machine(self) -> asyncio.Lock:
        """Held while this machine's processors judge; other heavy work here waits for it, so that times stay true."""
        ...

    async def run(self, job: Job, tell: Tell) -> Report:
        """The report on a job. Raises only if the problem or the harness is at fault, or ReportAwaited."""
        ...

    async def close(self) -> None:
        """End everything it started."""
        ...
