"""No machine at all: verdicts come from a function. For tests, and for measuring the loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from kforge.execution.base import Tell
from kforge.types import Job, Report, Verdict


@dataclass(frozen=True)
class NullExecutor:
    """Runs nothing; `judge` says what the verdict is."""

    judge: Callable[[Job], Verdict]
    machine: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, job: Job, tell: Tell) -> Report:
        return Report(job.id, job.problem.name, job.candidate.id, job.candidate.platform, self.judge(job))

    async def close(self) -> None:
        pass
