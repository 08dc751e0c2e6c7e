"""Which workers a job is asked for from: the one that knows its problem, those with other devices, or all."""

from __future__ import annotations

import asyncio
import time

from distributed.client import FutureCancelledError

from kforge.cluster.connection import SchedulerConnection
from kforge.cluster.description import job_resources
from kforge.cluster.exchange import SchedulerExchange
from kforge.cluster.job_queue import QueuedJob
from kforge.cluster.warm_workers import WarmWorkers
from kforge.types import JudgingDevice

_MOVE_SECONDS = 1.0
"""Between two looks at whether the workers that a job is for are still there."""
_PATIENCE_SECONDS = 20.0
"""For the worker that knows a job's problem to begin it: about what it costs another to open the problem."""
_FAULT_SECONDS = 300.0
"""How long a worker is left alone that could not carry a job out: what fails at once would attract all others."""


class JobPlacement:
    """Asks for jobs from the workers that they are for, and from others where these are gone or keep them waiting."""

    def __init__(self, connection: SchedulerConnection, warm: WarmWorkers) -> None:
        self._connection, self._warm = connection, warm
        self._faults: dict[str, float] = {}

    def leave_alone(self, process: str) -> None:
        """A worker could not carry a job out: for a while, what others can do is not asked of it."""
        self._faults[process] = time.monotonic()
        self._warm.forget(process)

    def others(self, job: QueuedJob) -> list[str]:
        """The workers that have a job's device, by address, beside the one that could not carry it out: on other hosts,
        or else on its own.
        """
        census, platform = self._connection.census, job.request.platform
        elsewhere = census.addresses(platform, job.model, without_host=job.avoid.rsplit("/", 2)[0])
        return elsewhere or census.addresses(platform, job.model, without={job.avoid})

    async def answer(self, job: QueuedJob, exchange: SchedulerExchange, priority: int) -> bytes:
        """A job's answer; empty where nobody is left but the host that could not carry it out. Raises what
        `SchedulerExchange.answer` does, and OSError in the place of Dask's word for an answer that was lost.
        """
        workers, is_steered = self._workers(job)
        while workers:
            asking = asyncio.create_task(_ask(exchange, job, priority, workers))
            try:
                is_moved = await self._until_moved(job, asking, workers, is_steered)
            finally:
                asking.cancel()
                await asyncio.wait({asking})
            if not is_moved or not asking.cancelled():
                return asking.result()
            job.moves += 1
            self._warm.end(job, is_answered=False)
            # Who is there and keeps it waiting is not asked again.
            if self._connection.census.takes_any(workers):
                break
            workers, is_steered = self._workers(job)
        return b"" if job.avoid else await _ask(exchange, job, priority, [])

    def _workers(self, job: QueuedJob) -> tuple[list[str], bool]:
        """The workers that a job is for, none for all with the device; and whether that is who knows the problem."""
        census, platform = self._connection.census, job.request.platform
        if job.avoid:
            return self.others(job), False
        if job.apart_from != JudgingDevice():
            return census.addresses_apart(platform, job.model, job.apart_from), False
        steered = self._warm.steer(job, census)
        if steered:
            return steered, True
        recent = time.monotonic() - _FAULT_SECONDS
        self._faults = {process: when for process, when in self._faults.items() if when > recent}
        return (census.addresses(platform, job.model, without=self._faults) if self._faults else []), False

    async def _until_moved(
        self, job: QueuedJob, asking: asyncio.Task[bytes], workers: list[str], is_steered: bool
    ) -> bool:
        """Wait until a job is answered, or has to be asked for elsewhere: whether it has to."""
        began, job.is_begun = time.monotonic(), False
        while not (await asyncio.wait({asking}, timeout=_MOVE_SECONDS))[0]:
            census, waited = self._connection.census, time.monotonic() - began
            if not census.has_any(workers):
                return True
            if not job.is_begun and (not census.takes_any(workers) or (is_steered and waited > _PATIENCE_SECONDS)):
                return True
        return False


async def _ask(exchange: SchedulerExchange, job: QueuedJob, priority: int, workers: list[str]) -> bytes:
    try:
        return await exchange.answer(job, job_resources(job.request.platform, job.model), priority, workers)
    except FutureCancelledError as error:
        # To asyncio it is a cancellation, which nobody has asked for.
        raise OSError(f"an answer was lost on its way: {error}") from error
