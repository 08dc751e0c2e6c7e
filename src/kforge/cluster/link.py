"""A controller's connection to a cluster: a thread with Dask's client, and everything that is outstanding."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from distributed import Client, KilledWorker
from distributed.client import FutureCancelledError

from kforge.cluster.address import ClusterAddress
from kforge.cluster.census import Census, read_census
from kforge.cluster.dask_settings import dask_security, quiet_client
from kforge.cluster.description import job_resources
from kforge.cluster.exchange import SchedulerExchange
from kforge.cluster.job_message import JobRequest
from kforge.cluster.job_queue import MOST_DEATHS, JobQueue, QueuedJob
from kforge.cluster.reachability import check_reachable
from kforge.cluster.tasks import TOPIC, describe_cluster
from kforge.errors import HarnessError, KForgeError

T = TypeVar("T")
_AHEAD = 2
"""How many jobs are with the scheduler for each place: one that is judged, and one that waits for its end."""
_LOOK_SECONDS = 0.2
_CENSUS_SECONDS = 5.0
_CENSUS_SECONDS_ALONE = 1.0
"""Where nobody is there to take a job."""
_REMIND_SECONDS = 60.0
_CONNECT_SECONDS = 15.0
_LONGEST_BACKOFF = 10.0
_SETTLE_SECONDS = 20.0
"""After a new connection, until all workers that live have come back too."""
_CLOSE_SECONDS = 10.0
_MOST_LOSSES = 5
"""How often an answer may be lost on its way, by a scheduler that is there, before that is an error."""


class Link:
    """Asks for answers, each of which comes once, whatever happens to schedulers and workers meanwhile.

    May be used from any event loop; everything here happens in the link's own.
    """

    def __init__(self, address: ClusterAddress) -> None:
        self._address = address
        self._queue = JobQueue()
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._models: dict[str, str] = {}
        self._client: Client | None = None
        self._exchange: SchedulerExchange | None = None
        self._census = Census()
        self._census_at = self._connected_at = -1e9
        self._trouble = "connecting to the cluster"
        self._told: dict[int, tuple[str, float]] = {}
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False

    # -- from any loop ----------------------------------------------------------------------------------------------

    async def ask(self, request: JobRequest, tell: Callable[[str], None], avoid: str = "") -> bytes:
        """The answer to a request. Waits as long as it takes; HarnessError where no worker survives the job.

        With a host to `avoid`, whose answer was no use, it is asked for elsewhere; empty where nobody else is there.
        """
        outer = asyncio.get_running_loop()

        def tell_there(words: str) -> None:
            with contextlib.suppress(RuntimeError):
                outer.call_soon_threadsafe(tell, words)

        return await self._call(self._ask(request, tell_there, avoid))

    def keep_to(self, platform: str, model: str) -> None:
        """Jobs for a platform go to this model of device, and to no other; what was chosen before stays."""
        self._models.setdefault(platform, model)

    async def close(self) -> None:
        """Take back what is outstanding, and end the connection."""
        if self._closed:
            return
        self._closed = True
        if self._loop is None or self._thread is None:
            return
        with contextlib.suppress(Exception):
            running = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            await asyncio.wait_for(asyncio.wrap_future(running), _CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise HarnessError("the executor is closed")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running_loop()))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                ready = threading.Event()
                self._thread = threading.Thread(target=self._serve, args=(ready,), name="kforge-cluster", daemon=True)
                self._thread.start()
                ready.wait()
            assert self._loop is not None
            return self._loop

    def _serve(self, ready: threading.Event) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._changed = asyncio.Event()
        self._loop = loop
        keeper = loop.create_task(self._stay_connected())
        loop.call_soon(ready.set)
        try:
            loop.run_forever()
        finally:
            keeper.cancel()
            rest = asyncio.all_tasks(loop)
            for task in rest:
                task.cancel()
            with contextlib.suppress(Exception):
                loop.run_until_complete(asyncio.wait_for(asyncio.gather(*rest, return_exceptions=True), 2))
            loop.close()

    # -- in the link's own loop -------------------------------------------------------------------------------------

    async def _ask(self, request: JobRequest, tell: Callable[[str], None], avoid: str) -> bytes:
        model = await self._model_for(request.platform, tell)
        text = request.message + model.encode() + avoid.encode()
        key = f"kforge-{request.platform}-{hashlib.sha256(text).hexdigest()[:32]}"
        asked = QueuedJob(request, model, key, [tell], avoid)
        if avoid and not self._others(asked):
            return b""
        job = self._queue.add(asked)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = asyncio.get_running_loop().create_future()
        self._hand_out()
        try:
            return await asyncio.shield(answer)
        finally:
            job.listeners.remove(tell)
            self._told.pop(id(tell), None)
            if not job.listeners and not answer.done():
                self._forget(job)

    async def _model_for(self, platform: str, tell: Callable[[str], None]) -> str:
        """The model of device that a platform's jobs are for: the one with most places when the first was asked for."""
        while platform not in self._models:
            model = self._census.largest_model(platform)
            if model:
                self._models.setdefault(platform, model)
                break
            self._remind(tell, self._missing(platform))
            await self._wait(_LOOK_SECONDS)
        return self._models[platform]

    def _forget(self, job: QueuedJob) -> None:
        """Nobody waits for it any longer."""
        self._queue.remove(job)
        self._answers.pop(job.key, None)
        follower = self._following.pop(job.key, None)
        if follower is not None:
            follower.cancel()
        self._hand_out()

    def _settle(self, job: QueuedJob, answer: bytes | Exception) -> None:
        """The first answer counts; of a second one there is nobody to tell."""
        waiting = self._answers.pop(job.key, None)
        self._queue.remove(job)
        if waiting is not None and not waiting.done():
            if isinstance(answer, bytes):
                waiting.set_result(answer)
            else:
                waiting.set_exception(answer)

    def _hand_out(self) -> None:
        """Hand the scheduler as many jobs as it has room for."""
        if self._client is None or self._client.status != "running":
            return
        slots = sum(self._census.slots(platform, model) for platform, model in self._models.items())
        for job, priority in self._queue.hand_out(_AHEAD * slots):
            self._following[job.key] = asyncio.create_task(self._follow(job, priority, self._client))

    async def _follow(self, job: QueuedJob, priority: int, client: Client) -> None:
        """Hand a job to the scheduler, and have its answer."""
        exchange = self._exchange
        assert exchange is not None
        try:
            if len(job.begun_on) >= MOST_DEATHS and await self._is_poison(job):
                self._settle(job, _poison_error(job))
                return
            resources = job_resources(job.request.platform, job.model)
            self._settle(job, await exchange.answer(job, resources, priority, self._others(job)))
        except KilledWorker:
            self._settle(job, _poison_error(job))
        except (FutureCancelledError, OSError, TimeoutError) as error:
            # The scheduler is gone or was restarted, or the answer with a worker's host: the job is not.
            job.losses += client.status == "running"
            if job.losses < _MOST_LOSSES:
                self._queue.take_back(job)
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                self._settle(job, _carrying_error(error))
        except Exception as error:
            self._settle(job, _carrying_error(error))
        finally:
            self._following.pop(job.key, None)
            self._hand_out()

    def _others(self, job: QueuedJob) -> list[str]:
        """Workers beside the one that could not carry a job out; empty where it need not be avoided, or is alone."""
        if not job.avoid:
            return []
        return [
            worker.address
            for worker in self._census.workers
            if worker.takes_jobs and worker.description is not None and worker.description.host != job.avoid
            for group in worker.description.groups
            if (group.platform, group.model) == (job.request.platform, job.model)
        ]

    async def _is_poison(self, job: QueuedJob) -> bool:
        """Whether as many workers ended over it as may. Those that live may need a while to come back."""
        await asyncio.sleep(max(0.0, self._connected_at + _SETTLE_SECONDS - time.monotonic()))
        await self._look()
        return self._deaths(job) >= MOST_DEATHS

    def _deaths(self, job: QueuedJob) -> int:
        return sum(not self._census.has_process(process) for process in job.begun_on)

    # -- the connection ---------------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        backoff = _LOOK_SECONDS
        while True:
            try:
                await self._serve_connected()
                self._trouble = f"the scheduler at {self._address.url} is gone; trying again"
                backoff = _LOOK_SECONDS
            except (Exception, asyncio.CancelledError) as error:
                # Whatever Dask makes of a scheduler that ends in the middle of something: it is asked again.
                if self._closed:
                    raise
                what = str(error) if isinstance(error, KForgeError) else f"{type(error).__name__}: {error}"
                self._trouble = f"{what}; trying again"
            self._remind_all()
            await asyncio.sleep(backoff)
            backoff = min(_LONGEST_BACKOFF, 2 * backoff)

    async def _serve_connected(self) -> None:
        """One connection, until it is lost."""
        await asyncio.to_thread(check_reachable, self._address)
        client = self._make_client()
        try:
            await asyncio.wait_for(_started(client), 2 * _CONNECT_SECONDS)
            await self._watch(client)
        finally:
            self._client = None
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client._close(fast=True), _CLOSE_SECONDS)

    def _make_client(self) -> Client:
        quiet_client()
        name = f"kforge-{getpass.getuser()}@{socket.gethostname()}-{os.getpid()}"
        return Client(
            self._address.url,
            asynchronous=True,
            security=dask_security(self._address),
            timeout=_CONNECT_SECONDS,
            name=name,
            set_as_default=False,
            direct_to_workers=False,
        )

    async def _watch(self, client: Client) -> None:
        """Until the scheduler is lost."""
        client.subscribe_topic(TOPIC, self._hear)
        self._exchange = SchedulerExchange(client)
        self._client, self._connected_at, self._census_at = client, time.monotonic(), -1e9
        while client.status == "running":
            lonely = len(self._queue) > self._queue.in_hand and not self._queue.in_hand
            seconds = _CENSUS_SECONDS_ALONE if lonely or not self._models else _CENSUS_SECONDS
            if time.monotonic() - self._census_at >= seconds:
                await self._look()
                self._hand_out()
                self._remind_all()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        """Ask who is there."""
        client = self._client
        if client is None:
            return
        told = await asyncio.wait_for(client.run_on_scheduler(describe_cluster), _CONNECT_SECONDS)
        self._census = read_census(told)
        self._census_at = time.monotonic()
        self._signal()

    def _hear(self, event: tuple[float, Any]) -> None:
        """A worker says what it is doing. Anybody's jobs are told of, and only ours are listened to."""
        told = event[1]
        if not isinstance(told, dict) or not all(isinstance(told.get(name), str) for name in ("key", "words", "host")):
            return
        job = self._queue.get(told["key"])
        if job is None:
            return
        process = str(told.get("process"))
        if told["words"] == "handed back":
            job.begun_on.pop(process, None)
            return
        if told["words"] == "begun":
            job.begun_on[process] = told["host"]
            if len(job.begun_on) > MOST_DEATHS and self._deaths(job) >= MOST_DEATHS:
                self._settle(job, _poison_error(job))
                self._forget(job)
                return
        words = "judging" if told["words"] == "begun" else told["words"]
        job.tell(f"{words[:80]} on {told['host'][:40]}")

    # -- what whoever waits is told ---------------------------------------------------------------------------------

    def _missing(self, platform: str, model: str = "") -> str:
        """Why a job for this cannot be carried out now; empty if it can."""
        if self._client is None:
            return self._trouble
        if self._census_at < self._connected_at or self._census.slots(platform, model):
            return ""
        start = f"kforge worker --scheduler {self._address.url} --platforms {platform}"
        return f"waiting: {self._census.missing_reason(platform, model)}. Start one: {start}"

    def _remind_all(self) -> None:
        missing = {item: self._missing(*item) for item in self._models.items()}
        for job in self._queue:
            words = missing[job.request.platform, job.model]
            for listener in list(job.listeners):
                self._remind(listener, words)

    def _remind(self, tell: Callable[[str], None], words: str) -> None:
        """Say it at once, and again every minute."""
        if not words:
            self._told.pop(id(tell), None)
            return
        last, when = self._told.get(id(tell), ("", -1e9))
        if last != words or time.monotonic() - when >= _REMIND_SECONDS:
            self._told[id(tell)] = (words, time.monotonic())
            tell(words)

    def _signal(self) -> None:
        assert self._changed is not None
        self._changed.set()

    async def _wait(self, seconds: float) -> None:
        """Until something has changed, or so long."""
        assert self._changed is not None
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def _end(self) -> None:
        """Cancel at the scheduler what nobody waits for now."""
        for job in self._queue:
            self._settle(job, HarnessError("the executor is closed"))
        following = list(self._following.values())
        for task in following:
            task.cancel()
        if following:
            await asyncio.wait(following, timeout=5)
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(timeout=3), 5)


async def _started(client: Client) -> None:
    await client


def _carrying_error(error: BaseException) -> HarnessError:
    return HarnessError(f"the cluster could not carry it out: {type(error).__name__}: {error}")


def _poison_error(job: QueuedJob) -> HarnessError:
    hosts = ", ".join(dict.fromkeys(job.begun_on.values())) or "unknown hosts"
    return HarnessError(
        f"{MOST_DEATHS} workers ended while they were at {job.request.title} ({hosts}): it is not tried again. See "
        "what they said last; kforge resume tries anew"
    )
