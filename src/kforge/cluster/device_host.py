"""What a worker process judges with: a warm judge for each of its devices, kept between jobs and connections."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge import registry
from kforge.cluster.description import DeviceGroup, JobInHand, WorkerActivity, WorkerDescription
from kforge.cluster.job_message import (
    CHECK,
    ReceivedJob,
    own_version,
    read_origin,
    read_request,
    unfit_reason,
    write_error,
    write_report,
)
from kforge.cluster.live_files import LiveFiles
from kforge.cluster.processor_turn import ProcessorTurn
from kforge.errors import HarnessError, PluginAbsent
from kforge.execution.base import DeviceChoice, Executor, ProblemCheck, Tell
from kforge.types import Job, JudgingDevice, Problem, Report, Settings
from kforge.visible_text import visible

if TYPE_CHECKING:
    from kforge.execution.local import LocalExecutor

OpenGroup = Callable[[DeviceGroup], Executor]
Say = Callable[[str, str], None]
"""Told a job's key and what is being done with it."""
_HOUR = 3600.0
_ANNOUNCE_SECONDS = 0.01
"""After which a job is said to be begun: an answer that comes sooner need not wait behind that word."""
_KEPT_ANSWERS = 256
"""Answers to jobs whose asker was gone when they were ready: the scheduler was lost, and will be back."""


def open_judges(group: DeviceGroup) -> Executor:
    """The judges of a group of devices, in threads of their own; they start with the first job."""
    # It imports torch.
    from kforge.execution.local import LocalExecutor

    executor = LocalExecutor(group.platform, group.devices, max(1, group.slots // max(1, len(group.devices))))
    if registry.load("platforms", group.platform).device_name(group.devices[0] if group.devices else 0) == "cpu":
        return _InTurn(executor, ProcessorTurn())
    return executor


class DeviceHost:
    """Answers requests. Whatever goes wrong with one is an answer too, and not an exception."""

    def __init__(self, description: WorkerDescription, open_group: OpenGroup = open_judges) -> None:
        self.description = description
        self.say: Say = lambda _key, _words: None
        self._open_group = open_group
        self._executors: dict[tuple[str, str], Executor] = {}
        self._tasks: dict[str, asyncio.Task[bytes]] = {}
        self._work: dict[str, _Work] = {}
        self._undelivered: dict[str, bytes] = {}
        self._live_files = LiveFiles()
        self._ended: deque[float] = deque()
        self._verdicts = 0
        self._began = time.monotonic()
        self.retiring = False

    @property
    def busy(self) -> int:
        """How many jobs are in hand."""
        return len(self._tasks)

    async def answer(self, key: str, message: bytes, payload: bytes, model: str, apart_from: str = "") -> bytes:
        """The answer to a request, by another device than the one of that identity where there are several.

        Who was cut off from it before it was ready finds it when he asks again.
        """
        earlier = self._undelivered.pop(key, None)
        if earlier is not None:
            return earlier
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(self._carry_out(key, message, payload, model, apart_from))
            self._tasks[key] = task
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(lambda ended: self._keep(key, ended))
            raise

    def activity(self) -> WorkerActivity:
        """What is in hand now."""
        now = time.monotonic()
        while self._ended and self._ended[0] < now - _HOUR:
            self._ended.popleft()
        spent = min(_HOUR, max(1.0, now - self._began))
        return WorkerActivity(
            tuple(
                JobInHand(key, work.title, work.platform, round(now - work.began, 1), work.doing)
                for key, work in self._work.items()
            ),
            self._verdicts,
            round(len(self._ended) * _HOUR / spent, 1),
            self.retiring,
        )

    async def finish(self) -> None:
        """Wait for what is in hand."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def close(self) -> None:
        """End the judges, in the middle of a job too."""
        for task in list(self._tasks.values()):
            task.cancel()
        for executor in self._executors.values():
            await executor.close()
        self._live_files.close()

    def _keep(self, key: str, ended: asyncio.Task[bytes]) -> None:
        # What went wrong then may be well by the time that it is asked for again.
        if ended.cancelled() or ended.exception() is not None or read_origin(ended.result()).is_fault:
            return
        self._undelivered[key] = ended.result()
        while len(self._undelivered) > _KEPT_ANSWERS:
            self._undelivered.pop(next(iter(self._undelivered)))

    async def _carry_out(self, key: str, message: bytes, payload: bytes, model: str, apart_from: str) -> bytes:
        try:
            received = read_request(message)
            title, platform = visible(received.job.problem.name)[:80], received.job.candidate.platform
            self._work[key] = work = _Work(title, platform, time.monotonic())
            asyncio.get_running_loop().call_later(_ANNOUNCE_SECONDS, self._announce, key, work)
            return await self._report(key, received, payload, model, apart_from)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            return write_error(error, self.description.host, self.description.process)
        finally:
            self._work.pop(key, None)

    async def _report(self, key: str, received: ReceivedJob, payload: bytes, model: str, apart_from: str) -> bytes:
        where = self.description.host, self.description.process
        reason = unfit_reason(received)
        if reason:
            raise HarnessError(reason)
        executor = self._executor(received.job.candidate.platform, model)

        def tell(words: str) -> None:
            self._tell(key, words)

        with self._live_files.hold(received.job, payload) as job:
            if received.kind == CHECK:
                if isinstance(executor, ProblemCheck):
                    await executor.check_problem(job.problem, job.settings, tell)
                return write_report(None, *where)
            report = await _run(executor, job, tell, apart_from)
        self._verdicts += 1
        self._ended.append(time.monotonic())
        return write_report(report, *where)

    def _executor(self, platform: str, model: str) -> Executor:
        groups = {(group.platform, group.model): group for group in self.description.groups}
        if (platform, model) not in groups:
            raise PluginAbsent(f"no {model} for platform {platform} is on this worker (KForge {own_version()})")
        if (platform, model) not in self._executors:
            self._executors[platform, model] = self._open_group(groups[platform, model])
        return self._executors[platform, model]

    def _tell(self, key: str, words: str) -> None:
        work = self._work.get(key)
        if work is not None:
            work.doing = words
            if work.is_announced:
                self.say(key, words)

    def _announce(self, key: str, work: _Work) -> None:
        """Say that a job is begun, if it is still in hand."""
        if self._work.get(key) is work:
            work.is_announced = True
            self.say(key, "begun")


@dataclass
class _Work:
    """A job in hand."""

    title: str
    platform: str
    began: float
    doing: str = ""
    is_announced: bool = False
    """Whether its asker was told that it is begun."""


class _InTurn:
    """Judges whose devices are this machine's processors: one job at a time, among all workers on it."""

    def __init__(self, executor: LocalExecutor, turn: ProcessorTurn) -> None:
        self._executor, self._turn = executor, turn

    @property
    def machine(self) -> asyncio.Lock:
        return self._executor.machine

    async def run(self, job: Job, tell: Tell) -> Report:
        async with self._turn.hold(tell):
            return await self._executor.run(job, tell)

    async def check_problem(self, problem: Problem, settings: Settings, tell: Tell) -> None:
        async with self._turn.hold(tell):
            await self._executor.check_problem(problem, settings, tell)

    async def close(self) -> None:
        await self._executor.close()


async def _run(executor: Executor, job: Job, tell: Tell, apart_from: str) -> Report:
    if apart_from and isinstance(executor, DeviceChoice):
        return await executor.run_apart(job, tell, JudgingDevice(identity=apart_from))
    return await executor.run(job, tell)
