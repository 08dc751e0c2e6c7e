"""Which workers a job is asked for from: the one that knows its problem, those with other devices, or all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from distributed.client import FutureCancelledError

from kforge.cluster.census import WorkerStanding
from kforge.cluster.connection import SchedulerConnection
from kforge.cluster.description import job_resources
from kforge.cluster.exchange import SchedulerExchange
from kforge.cluster.job_queue import QueuedJob
from kforge.cluster.warm_workers import WarmWorkers
from kforge.types import JudgingDevice
from kforge.worker.fault_pause import FaultPauses

_MOVE_SECONDS = 1.0
"""Between two looks at whether the workers that a job is for are still there."""
_PATIENCE_SECONDS = 20.0
"""For the worker that knows a job's problem to begin it: about what it costs another to open the problem."""


class JobPlacement:
    """Asks for jobs from the workers that they are for, and from others where these are gone or keep them waiting."""

    def __init__(self, connection: SchedulerConnection, warm: WarmWorkers) -> None:
        self._connection, self._warm = connection, warm
        self._pauses = FaultPauses()
        """Of worker processes."""

    def leave_alone(self, process: str) -> None:
        """A worker could not carry a job out: for a while, longer each time, others are asked in its place."""
        self._pauses.begin(process)
        self._warm.forget(process)

    def forgive(self, process: str) -> None:
        """It carries jobs out."""
        self._pauses.end(process)

    def others(self, job: QueuedJob) -> list[str]:
        """The workers that have a job's device, by address, beside those that could not carry it out."""
        return [worker.address for worker in self._takers(job)]

    def _takers(self, job: QueuedJob) -> list[WorkerStanding]:
        takers = self._connection.census.takers(job.request.platform, job.model)
        return [worker for worker in takers if worker.process not in job.avoid]

    async def answer(self, job: QueuedJob, exchange: SchedulerExchange, priority: int) -> bytes:
        """A job's answer; empty where nobody is left but who could not carry it out. Raises what
        `SchedulerExchange.answer` does, and OSError in the place of Dask's word for an answer that was lost.
        """
        workers, is_steered = self._workers(job)
        # Once: who has nothing to do for this controller may be busy for another.
        may_move_to_free = True
        while workers:
            job.workers = workers
            asking = asyncio.create_task(_ask(exchange, job, priority, workers))
            try:
                is_moved = await self._until_moved(job, asking, workers, is_steered, may_move_to_free)
            finally:
                asking.cancel()
                await asyncio.wait({asking})
            if not is_moved or not asking.cancelled():
                return asking.result()
            job.moves += 1
            moves_to_free = may_move_to_free and self._warm.knows_free_worker(job, self._connection.census)
            may_move_to_free &= not moves_to_free
            self._warm.end(job, is_answered=False)
            # Who is there and keeps it waiting is not asked again.
            if self._connection.census.takes_any(workers) and not moves_to_free:
                break
            workers, is_steered = self._workers(job)
        job.workers = []
        return b"" if job.avoid else await _ask(exchange, job, priority, [])

    def _workers(self, job: QueuedJob) -> tuple[list[str], bool]:
        """The workers that a job is for, none for all with the device; and whether that is who knows the problem."""
        if not job.avoid and job.apart_from == JudgingDevice():
            steered = self._warm.steer(job, self._connection.census)
            if steered:
                return steered, True
        takers = wanted = self._takers(job)
        wanted = _preferred(wanted, lambda worker: not self._pauses.holds(worker.process))
        wanted = _preferred(wanted, lambda worker: worker.has_other(job.request.platform, job.model, job.apart_from))
        wanted = _preferred(wanted, lambda worker: worker.host not in {*job.avoid.values(), job.apart_from.host})
        is_restricted = bool(job.avoid) or len(wanted) < len(takers)
        return ([worker.address for worker in wanted] if is_restricted else []), False

    async def _until_moved(
        self,
        job: QueuedJob,
        asking: asyncio.Task[bytes],
        workers: list[str],
        is_steered: bool,
        may_move_to_free: bool,
    ) -> bool:
        """Wait until a job is answered, or has to be asked for elsewhere: whether it has to."""
        began, job.is_begun = time.monotonic(), False
        while not (await asyncio.wait({asking}, timeout=_MOVE_SECONDS))[0]:
            census, waited = self._connection.census, time.monotonic() - began
            if not census.has_any(workers):
                return True
            if job.is_begun:
                continue
            if not census.takes_any(workers) or (is_steered and waited > _PATIENCE_SECONDS):
                return True
            if is_steered and may_move_to_free and self._warm.knows_free_worker(job, census):
                return True
        return False


def _preferred(workers: list[WorkerStanding], condition: Callable[[WorkerStanding], bool]) -> list[WorkerStanding]:
    """Those that a condition holds for, if there are any."""
    return [worker for worker in workers if condition(worker)] or workers


async def _ask(exchange: SchedulerExchange, job: QueuedJob, priority: int, workers: list[str]) -> bytes:
    try:
        return await exchange.answer(job, job_resources(job.request.platform, job.model), priority, workers)
    except FutureCancelledError as error:
        # To asyncio it is a cancellation, which nobody has asked for.
        raise OSError(f"an answer was lost on its way: {error}") from error
