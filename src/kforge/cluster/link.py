"""What a controller asks a cluster for: each answer once, whatever happens to schedulers and workers meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from distributed import KilledWorker

from kforge.cluster.address import ClusterAddress
from kforge.cluster.connection import SchedulerConnection
from kforge.cluster.description import device_resource
from kforge.cluster.exchange import SchedulerExchange
from kforge.cluster.job_message import JobRequest, read_origin
from kforge.cluster.job_placement import JobPlacement
from kforge.cluster.job_queue import MOST_DEATHS, JobQueue, QueuedJob
from kforge.cluster.loop_thread import LoopThread
from kforge.cluster.reminders import Reminders
from kforge.cluster.warm_workers import WarmWorkers
from kforge.errors import HarnessError, ProblemError
from kforge.types import JudgingDevice

_AHEAD = 2
"""How many jobs are with the scheduler for each place: one that is judged, and one that waits for its end."""
_LOOK_SECONDS = 0.2
_SETTLE_SECONDS = 30.0
"""After a new connection, until all workers that live have come back too."""
_MOST_LOSSES = 5
"""How often an answer may be lost on its way, by a scheduler that is there, before that is an error."""


class Link:
    """Asks for answers. May be used from any event loop; everything here happens in the link's own."""

    def __init__(self, address: ClusterAddress) -> None:
        self._queue = JobQueue()
        self._warm = WarmWorkers()
        self._reminders = Reminders()
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._models: dict[str, str] = {}
        self._connection = SchedulerConnection(address, self)
        self._placement = JobPlacement(self._connection, self._warm)
        self._thread = LoopThread("kforge-cluster", self._connection.keep)

    # -- from any loop ----------------------------------------------------------------------------------------------

    async def ask(
        self,
        request: JobRequest,
        tell: Callable[[str], None],
        avoid: Mapping[str, str] = MappingProxyType({}),
        apart_from: JudgingDevice = JudgingDevice(),
    ) -> bytes:
        """The answer to a request. Waits as long as it takes; HarnessError where no worker survives the job.

        With worker processes to `avoid`, and their hosts, whose answers were no use, it is asked for elsewhere; empty
        where nobody else is there.
        With a device to be `apart_from`, another one is asked where there is one.
        """
        return await self._thread.call(self._ask(request, _tell_from_here(tell), avoid, apart_from))

    async def device_facts(self, platform: str, tell: Callable[[str], None]) -> list[dict[str, str]]:
        """What is known of the devices that a platform's jobs go to, each worker's; waits until there is one."""
        return await self._thread.call(self._device_facts(platform, _tell_from_here(tell)))

    def keep_to(self, platform: str, model: str) -> None:
        """Jobs for a platform go to this model of device, and to no other; what was chosen before stays."""
        self._models.setdefault(platform, model)

    def model(self, platform: str) -> str:
        """The model of device that a platform's jobs go to; empty where none was chosen yet."""
        return self._models.get(platform, "")

    async def close(self) -> None:
        """Take back what is outstanding, and end the connection."""
        await self._thread.close(self._end)

    # -- in the link's own loop -------------------------------------------------------------------------------------

    async def _ask(
        self, request: JobRequest, tell: Callable[[str], None], avoid: Mapping[str, str], apart_from: JudgingDevice
    ) -> bytes:
        model = await self._model_for(request.platform, tell)
        text = request.message + "\0".join((model, *sorted(avoid), apart_from.host, apart_from.identity)).encode()
        key = f"kforge-{request.platform}-{hashlib.sha256(text).hexdigest()[:32]}"
        asked = QueuedJob(request, model, key, [tell], avoid, apart_from)
        if avoid and not self._placement.others(asked):
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
            self._reminders.forget(tell)
            if not job.listeners and not answer.done():
                self._forget(job)

    async def _device_facts(self, platform: str, tell: Callable[[str], None]) -> list[dict[str, str]]:
        try:
            model = await self._model_for(platform, tell)
            while not self._connection.census.slots(platform, model):
                self._reminders.remind(tell, self._connection.missing_reason(platform, model))
                await self._connection.wait_for_census(_LOOK_SECONDS)
        finally:
            self._reminders.forget(tell)
        groups = self._connection.census.groups(platform)
        return [dict(group.facts) for group in groups if group.model == model]

    async def _model_for(self, platform: str, tell: Callable[[str], None]) -> str:
        """The model of device that a platform's jobs are for: the one with most places when the first was asked for."""
        while platform not in self._models:
            model = self._connection.census.largest_model(platform)
            if model:
                self._models.setdefault(platform, model)
                break
            self._reminders.remind(tell, self._connection.missing_reason(platform))
            await self._connection.wait_for_census(_LOOK_SECONDS)
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
        exchange = self._connection.exchange
        if exchange is None or not exchange.is_open:
            return
        slots = sum(self._connection.census.slots(platform, model) for platform, model in self._models.items())
        for job, priority in self._queue.hand_out(_AHEAD * slots):
            self._following[job.key] = asyncio.create_task(self._follow(job, priority, exchange))

    async def _follow(self, job: QueuedJob, priority: int, exchange: SchedulerExchange) -> None:
        """Hand a job to the scheduler, and have its answer."""
        try:
            if len(job.begun_on) >= MOST_DEATHS and await self._is_poison(job):
                self._settle(job, _poison_error(job))
                return
            answer = await self._placement.answer(job, exchange, priority)
            self._note_answer(job, answer)
            self._settle(job, answer)
        except KilledWorker:
            if await self._is_innocent(job):
                await self._lose(job, _poison_error(job))
            else:
                self._settle(job, _poison_error(job))
        except ProblemError as error:
            # Its live module's file is gone here.
            self._settle(job, error)
        except Exception as error:
            # With the scheduler gone or restarted, or an answer with its worker's host, the job is not lost.
            if not exchange.is_open:
                await self._take_back(job)
            elif isinstance(error, (OSError, TimeoutError)):
                await self._lose(job, _carrying_error(error))
            else:
                self._settle(job, _carrying_error(error))
        finally:
            # It may have been taken back, and be followed anew by now.
            is_own = self._following.get(job.key) is asyncio.current_task()
            if is_own:
                del self._following[job.key]
            if is_own or self._queue.get(job.key) is not job:
                self._warm.end(job, is_answered=False)
            self._hand_out()

    def _note_answer(self, job: QueuedJob, answer: bytes) -> None:
        """Whoever could do a job knows its problem now; whoever could not is left alone for a while."""
        origin = read_origin(answer)
        if origin.is_fault:
            self._placement.leave_alone(origin.process)
        else:
            self._placement.forgive(origin.process)
        self._warm.begin(job, origin.process)
        self._warm.end(job, is_answered=not origin.is_fault)

    async def _lose(self, job: QueuedJob, error: HarnessError) -> None:
        """It is handed out again, unless that was done too often."""
        job.losses += 1
        if job.losses < _MOST_LOSSES:
            await self._take_back(job)
        else:
            self._settle(job, error)

    async def _take_back(self, job: QueuedJob) -> None:
        self._warm.end(job, is_answered=False)
        self._queue.take_back(job)
        await asyncio.sleep(_LOOK_SECONDS)

    async def _is_poison(self, job: QueuedJob) -> bool:
        """Whether as many workers ended over it as may. Those that live may need a while to come back."""
        await asyncio.sleep(max(0.0, self._connection.made_at + _SETTLE_SECONDS - time.monotonic()))
        await self._connection.look()
        return self._deaths(job) >= MOST_DEATHS

    async def _is_innocent(self, job: QueuedJob) -> bool:
        """Whether workers that the scheduler takes for ended by a job never began it, or were cut off and are back."""
        with contextlib.suppress(Exception):
            await self._connection.look()
        return self._deaths(job) < MOST_DEATHS

    def _deaths(self, job: QueuedJob) -> int:
        return sum(not self._connection.census.has_process(process) for process in job.begun_on)

    # -- what the connection tells -----------------------------------------------------------------------------------

    @property
    def is_lonely(self) -> bool:
        """Whether jobs wait that nobody has taken, or nobody knows yet which devices there are."""
        return not self._models or (len(self._queue) > 0 and not self._queue.in_hand)

    @property
    def held(self) -> dict[str, int]:
        """How many jobs wait here until the scheduler has room for them, by the resource that they take."""
        waiting = (job for job in self._queue if not job.handed_out)
        return dict(Counter(device_resource(job.request.platform, job.model) for job in waiting))

    def note_change(self) -> None:
        """Hand out what there are workers for now, and tell whoever waits for others."""
        self._hand_out()
        missing = {item: self._connection.missing_reason(*item) for item in self._models.items()}
        for job in self._queue:
            words = missing[job.request.platform, job.model]
            for listener in list(job.listeners):
                self._reminders.remind(listener, words)

    def hear(self, told: dict[str, str]) -> None:
        """A worker says what it is doing. Anybody's jobs are told of, and only ours are listened to."""
        job = self._queue.get(told["key"])
        if job is None:
            return
        process = told["process"]
        if told["words"] == "handed back":
            job.begun_on.pop(process, None)
            job.is_begun = False
            return
        worker = self._connection.census.worker(process)
        if job.workers and worker is not None and worker.address not in job.workers:
            # Another controller asks it for the same.
            return
        if told["words"] == "begun":
            job.begun_on[process] = told["host"]
            job.is_begun = True
            self._warm.begin(job, process)
            if len(job.begun_on) > MOST_DEATHS and self._deaths(job) >= MOST_DEATHS:
                self._settle(job, _poison_error(job))
                self._forget(job)
                return
        words = "judging" if told["words"] == "begun" else told["words"]
        job.tell(f"{words[:80]} on {told['host'][:40]}")

    async def _end(self) -> None:
        """Cancel at the scheduler what nobody waits for now."""
        for job in self._queue:
            self._settle(job, HarnessError("the executor is closed"))
        following = list(self._following.values())
        for task in following:
            task.cancel()
        if following:
            await asyncio.wait(following, timeout=5)
        await self._connection.close()


def _tell_from_here(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tells in the loop that asks, from any other."""
    outer = asyncio.get_running_loop()

    def tell_there(words: str) -> None:
        with contextlib.suppress(RuntimeError):
            outer.call_soon_threadsafe(tell, words)

    return tell_there


def _carrying_error(error: BaseException) -> HarnessError:
    return HarnessError(f"the cluster could not carry it out: {type(error).__name__}: {error}")


def _poison_error(job: QueuedJob) -> HarnessError:
    hosts = ", ".join(dict.fromkeys(job.begun_on.values())) or "unknown hosts"
    return HarnessError(
        f"{MOST_DEATHS} workers ended while they were at {job.request.title} ({hosts}): it is not tried again. See "
        "what they said last; kforge resume tries anew"
    )
