"""The executors of clusters: each job is carried out by whichever worker has the device, and answered once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from kforge import registry
from kforge.cluster.address import ClusterAddress
from kforge.cluster.job_message import (
    JobRequest,
    check_request,
    judge_request,
    read_check,
    read_origin,
    read_report_on,
)
from kforge.cluster.local_cluster import LocalCluster
from kforge.errors import HarnessError, KForgeError, ProblemError
from kforge.execution.base import WAIT_PREFIX, Tell
from kforge.execution.early_compilation import EarlyCompilation
from kforge.types import Job, JudgingDevice, Problem, Report, Settings
from kforge.worker.sandbox import levels
from kforge.worker.sandbox.kernel import forbid_inspection

if TYPE_CHECKING:
    from kforge.cluster.link import Link

T = TypeVar("T")
_LOOK_SECONDS = 0.5
_MOST_WORKERS = 3
"""That are asked for a job which none of them can do."""


class ClusterExecutor:
    """Judges for one platform, on one model of device. The connection is made with the first job."""

    def __init__(self, address: ClusterAddress, platform: str, early: EarlyCompilation | None = None) -> None:
        """`early`: compiles programs here before they are sent, where that is wanted."""
        self._address = address
        self._early = early
        self._platform = platform
        self._link: Link | None = None
        self._model = ""

    @property
    def machine(self) -> asyncio.Lock:
        """Nothing is timed here: nobody has to wait."""
        return asyncio.Lock()

    def keep_to_hardware(self, model: str) -> None:
        """Programs of a run that goes on are compared with those it has: they are judged on the same model."""
        self._choose(model)
        if self._model != model:
            raise HarnessError(
                f"its programs were judged on {model}, and this session judges on {self._model}: go on with the run by "
                "itself (kforge resume), so that one run stays on one model of device"
            )

    async def facts(self, tell: Tell) -> dict[str, str]:
        """What the workers say of the model that judges, for prompts. Waits until there is one."""
        return (await self._connection().device_facts(self._platform, tell))[0]

    def _choose(self, model: str) -> None:
        """Judge on this model, unless another was chosen before, here or by the link for its first job."""
        self._model = self._model or model
        if self._link is not None and self._model:
            self._link.keep_to(self._platform, self._model)
            self._model = self._link.model(self._platform)

    async def run(self, job: Job, tell: Tell) -> Report:
        if self._early is not None:
            devices = await self._connection().device_facts(job.candidate.platform, tell)
            report = await self._early.report(job, devices, tell)
            if report is not None:
                return report
        return await self.run_apart(job, tell, JudgingDevice())

    async def run_apart(self, job: Job, tell: Tell, device: JudgingDevice) -> Report:
        """As `run`, on another device of the same model where there is one, best on another host."""
        return await self._answer(judge_request(job), tell, functools.partial(read_report_on, job), device)

    async def check_problem(self, problem: Problem, settings: Settings, tell: Tell) -> None:
        """Have a worker run the reference once, before a model is paid for a program."""
        request = check_request(problem, settings, self._platform)
        await self._answer(request, tell, read_check, JudgingDevice())

    async def _answer(self, request: JobRequest, tell: Tell, read: Callable[[bytes], T], device: JudgingDevice) -> T:
        """What a worker answers, or another where that one cannot do it."""
        failed: dict[str, str] = {}
        answer = await self._connection().ask(request, tell, failed, device)
        while True:
            try:
                return read(answer)
            except ProblemError:
                # It is the same everywhere.
                raise
            except KForgeError:
                origin = read_origin(answer)
                failed = {**failed, origin.process: origin.host}
                if len(failed) >= _MOST_WORKERS:
                    raise
                tell("a worker could not do it: asking another")
                elsewhere = await self._connection().ask(request, tell, failed, device)
                if not elsewhere:
                    raise
            answer = elsewhere

    async def close(self) -> None:
        if self._early is not None:
            await self._early.close()
        if self._link is not None:
            await self._link.close()

    def _connection(self) -> Link:
        if self._link is None:
            # It imports Dask, which naming an executor does without.
            from kforge.cluster.link import Link

            self._link = Link(self._address)
            if self._model:
                self._link.keep_to(self._platform, self._model)
        return self._link


class LocalClusterExecutor:
    """A cluster of this machine alone, for a try: its processes start with the first job, and end with the executor."""

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._cluster = LocalCluster(platform)
        self._executor: ClusterExecutor | None = None
        self._of_loop: tuple[asyncio.AbstractEventLoop, asyncio.Lock, asyncio.Lock] | None = None

    @property
    def machine(self) -> asyncio.Lock:
        """Held while this machine's processors judge."""
        return self._locks()[0]

    async def run(self, job: Job, tell: Tell) -> Report:
        return await self.run_apart(job, tell, JudgingDevice())

    async def run_apart(self, job: Job, tell: Tell, device: JudgingDevice) -> Report:
        """As `run`, on another device of this machine where there is one."""
        if levels.choose(job.settings.sandbox) == "process":
            # Nothing else keeps a program from the keys in the environment of this process.
            forbid_inspection()
        executor = await self._started(tell)
        async with self._turn():
            return await self._while_it_lives(executor.run_apart(job, _without_advice(tell), device))

    async def check_problem(self, problem: Problem, settings: Settings, tell: Tell) -> None:
        executor = await self._started(tell)
        async with self._turn():
            await self._while_it_lives(executor.check_problem(problem, settings, _without_advice(tell)))

    async def _while_it_lives(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives; HarnessError where a process of the cluster ended meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_SECONDS))[0]:
                reason = self._cluster.ended_reason()
                if reason:
                    raise HarnessError(reason)
            return await task
        finally:
            task.cancel()

    async def close(self) -> None:
        if self._executor is not None:
            await self._executor.close()
        await asyncio.to_thread(self._cluster.close)

    async def _started(self, tell: Tell) -> ClusterExecutor:
        async with self._locks()[1]:
            if self._executor is None:
                tell("starting a cluster on this machine")
                address = await asyncio.to_thread(self._cluster.start)
                self._executor = ClusterExecutor(address, self._platform)
            return self._executor

    def _turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Where building would disturb the timing, nothing else of this process works beside a judgement."""
        apart = registry.load("platforms", self._platform).builds_apart
        return contextlib.nullcontext() if apart else self.machine

    def _locks(self) -> tuple[asyncio.Lock, asyncio.Lock]:
        """For judging, and for starting: one pair for each event loop, as runs may follow one another in their own."""
        loop = asyncio.get_running_loop()
        if self._of_loop is None or self._of_loop[0] is not loop:
            self._of_loop = (loop, asyncio.Lock(), asyncio.Lock())
        return self._of_loop[1:]


def _without_advice(tell: Tell) -> Tell:
    """The worker of a cluster for a try is about to be there: nobody has to start one."""
    return lambda words: tell(
        "waiting for the worker to start" if words.startswith(f"{WAIT_PREFIX}no worker") else words
    )
