"""What goes to a scheduler and comes back by way of one client of Dask's: jobs one by one, answers together."""

from __future__ import annotations

import asyncio
import contextlib

from distributed import Client, Future
from distributed.client import FutureCancelledError

from kforge.cluster.job_queue import QueuedJob
from kforge.cluster.tasks import carry_out

_FETCHES = 4
"""Requests for answers at once: each is a connection, and one may have to wait for a worker."""
_TOGETHER = 64
"""Answers in one of them at most."""
_FETCH_SECONDS = 20.0
"""For all answers of one request; after that each is fetched by itself, and waits for as long as it takes."""
_RELEASE_SECONDS = 0.25
"""Answers that were fetched are given up together: what is said in between would keep the next job waiting."""

_Ready = tuple[Future, "asyncio.Future[bytes]"]
"""What is there to be fetched, and who waits for it."""


class SchedulerExchange:
    """Of one connection, and gone with it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ready: list[_Ready] = []
        self._fetches: set[asyncio.Task[None]] = set()
        self._alone: set[asyncio.Task[None]] = set()
        self._done: list[Future] = []

    @property
    def is_open(self) -> bool:
        """Whether the connection is there."""
        return bool(self._client.status == "running")

    async def answer(self, job: QueuedJob, resources: dict[str, float], priority: int, workers: list[str]) -> bytes:
        """A job's answer. Raises what Dask does where there is none; given up, the job is cancelled there too."""
        # Equal jobs of several controllers are one task, whose workers are those that were named first: where some are
        # named the task is this controller's own.
        task = f"{job.task}-{self._client.id}" if workers else job.task
        payload = await asyncio.to_thread(job.request.read_payload) if job.request.live_file else b""
        await self._make_sure_released(task)
        future = self._client.submit(
            carry_out,
            job.key,
            job.request.message,
            payload,
            job.model,
            job.apart_from.identity,
            key=task,
            resources=resources,
            priority=priority,
            pure=False,
            # Strictly: what Dask calls allowing others would allow those without the device, too.
            workers=workers or None,
        )
        del payload
        try:
            error = await future.exception()
            if future.status == "error":
                raise error
            if future.status != "finished":
                raise FutureCancelledError(task, "lost")
            return await self._fetch(future)
        except asyncio.CancelledError as error:
            if not isinstance(error, FutureCancelledError) and self._client.status == "running":
                with contextlib.suppress(Exception):
                    await asyncio.shield(self._client.cancel([future]))
            raise
        finally:
            self._release_later(future)

    async def _fetch(self, future: Future) -> bytes:
        """Beside others that are there: a request for each would be a connection for each."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._ready.append((future, answer))
        if len(self._fetches) < _FETCHES:
            task = asyncio.create_task(self._fetch_all())
            self._fetches.add(task)
            task.add_done_callback(self._fetches.discard)
        return await answer

    async def _fetch_all(self) -> None:
        while self._ready:
            batch, self._ready = self._ready[:_TOGETHER], self._ready[_TOGETHER:]
            try:
                await asyncio.wait_for(self._gather(batch), _FETCH_SECONDS)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and not isinstance(error, FutureCancelledError):
                    _fail(batch, error)
                    raise
                # One that is lost, or is judged again, must not keep the others waiting.
                for each in batch:
                    task = asyncio.create_task(self._fetch_alone(each))
                    self._alone.add(task)
                    task.add_done_callback(self._alone.discard)

    async def _fetch_alone(self, each: _Ready) -> None:
        try:
            await self._gather([each])
        except (Exception, asyncio.CancelledError) as error:
            _fail([each], error)

    async def _gather(self, batch: list[_Ready]) -> None:
        """Ask the scheduler for them. Dask's own `gather` would put requests of one moment together, and what one of
        them waits for would keep the others.
        """
        told = await self._client.scheduler.gather(keys=[future.key for future, _ in batch])
        if told["status"] != "OK":
            raise OSError(f"{len(told['keys'])} of {len(batch)} are lost")
        for future, answer in batch:
            value = told["data"].get(future.key)
            if not answer.done():
                answer.set_result(value if isinstance(value, bytes) else b"")

    def _release_later(self, future: Future) -> None:
        if not self._done:
            asyncio.get_running_loop().call_later(_RELEASE_SECONDS, self._release_all)
        self._done.append(future)

    def _release_all(self) -> None:
        done, self._done = self._done, []
        for future in done:
            with contextlib.suppress(Exception):
                future.release()

    async def _make_sure_released(self, key: str) -> None:
        """An answer of a moment ago must not be taken for one to what is asked now."""
        if any(future.key == key for future in self._done):
            self._release_all()
        while key in self._client.futures and self._client.status == "running":
            await asyncio.sleep(0.001)


def _fail(batch: list[_Ready], error: BaseException) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(OSError(f"an answer was lost on its way: {error}"))
