"""This machine: a warm judge for each device, in threads of their own."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kforge import registry
from kforge.errors import HarnessError
from kforge.execution.base import Tell
from kforge.types import Job, JudgingDevice, Problem, Report, Settings
from kforge.worker.judges import Judges, usual_builders

T = TypeVar("T")
_CLOSE_SECONDS = 10.0


class LocalExecutor:
    """Judges on this machine's devices. The judges start with the first job."""

    def __init__(self, platform: str = "cpu", devices: tuple[int, ...] = (), builders: int = 0) -> None:
        """`devices`: numbers, empty for all; `builders`: programs in hand at once for each, 0 for what suits."""
        self._platform = platform
        self._devices = devices
        self._builders = builders
        self._judges: Judges | None = None
        self._starting = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def machine(self) -> asyncio.Lock:
        """One lock for each event loop: runs may follow one another in loops of their own."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    async def run(self, job: Job, tell: Tell) -> Report:
        return await self._run_in_turn(lambda judges, say: judges.report(job, say), tell)

    async def run_apart(self, job: Job, tell: Tell, device: JudgingDevice) -> Report:
        """As `run`, on another device than that where there are several."""
        return await self._run_in_turn(lambda judges, say: judges.report(job, say, device.identity), tell)

    async def check_problem(self, problem: Problem, settings: Settings, tell: Tell) -> None:
        """Have a judge run the reference once; its first program finds the problem known."""
        await self._run_in_turn(lambda judges, _: judges.check(problem, settings), tell)

    async def _run_in_turn(self, task: Callable[[Judges, Tell], T], tell: Tell) -> T:
        if not self._threads and not self._closing:
            self._start()
        if len(self._threads) > 1:
            return await self._run_in_thread(task, tell)
        async with self.machine:
            return await self._run_in_thread(task, tell)

    def _start(self) -> None:
        builders = self._builders or usual_builders(self._platform)
        devices = len(self._devices or registry.load("platforms", self._platform).devices()) or 1
        # Daemons: a candidate that hangs must not keep the program from ending.
        self._threads = [
            threading.Thread(target=self._serve, name=f"kforge-judge-{number}", daemon=True)
            for number in range(builders * devices)
        ]
        for thread in self._threads:
            thread.start()

    async def _run_in_thread(self, task: Callable[[Judges, Tell], T], tell: Tell) -> T:
        if self._closing:
            raise HarnessError("the executor is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(method: Callable[..., None], value: Any) -> None:
            if not answer.done():
                method(value)

        def tell_if_waiting(message: str) -> None:
            if not answer.done():
                tell(message)

        def call(method: Callable[..., None], *arguments: Any) -> None:
            # The loop may be gone by the time a judgement ends: the run was stopped.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(method, *arguments)

        def work() -> None:
            if answer.done():
                return
            if self._closing:
                call(settle, answer.set_exception, HarnessError("the executor is closed"))
                return
            try:
                result = task(self._ready_judges(), lambda message: call(tell_if_waiting, message))
            except BaseException as error:
                call(settle, answer.set_exception, error)
            else:
                call(settle, answer.set_result, result)

        self._work.put(work)
        return await answer

    async def close(self) -> None:
        """End everything, a judgement that is under way too. Nothing can be run afterwards."""
        self._closing = True
        if not self._threads:
            return
        for _thread in self._threads:
            self._work.put(None)
        await asyncio.to_thread(self._join, 0.2)
        # In the middle of a judgement, its processes are ended, and the thread follows.
        if self._judges is not None:
            await asyncio.to_thread(self._judges.close)
        await asyncio.to_thread(self._join, _CLOSE_SECONDS)

    def _join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _ready_judges(self) -> Judges:
        with self._starting:
            if self._judges is None:
                self._judges = Judges(self._platform, self._devices)
            return self._judges

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
