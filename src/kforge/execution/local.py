"""This machine: one warm judge, in a thread of its own, one job at a time."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from kforge.errors import HarnessError
from kforge.execution.face import Tell
from kforge.types import Job, Report
from kforge.worker.judge.judge import Judge

_CLOSE_SECONDS = 10.0


class LocalExecutor:
    """Judges on this machine's device. The judge starts with the first job."""

    def __init__(self, platform: str = "cpu") -> None:
        self._platform = platform
        self._judge: Judge | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: a candidate that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._serve, name="kforge-judge", daemon=True)
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
        async with self.machine:
            return await self._run(job, tell)

    async def _run(self, job: Job, tell: Tell) -> Report:
        if self._closing:
            raise HarnessError("the executor is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Report] = loop.create_future()

        def settle(method: Callable[..., None], value: Any) -> None:
            if not answer.done():
                method(value)

        def told(words: str) -> None:
            if not answer.done():
                tell(words)

        def call(method: Callable[..., None], *arguments: Any) -> None:
            # The loop may be gone by the time a judgement ends: the run was stopped.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(method, *arguments)

        def work() -> None:
            if answer.done() or self._closing:
                return
            try:
                report = self._ready_judge().report(job, lambda words: call(told, words))
            except BaseException as error:
                call(settle, answer.set_exception, error)
            else:
                call(settle, answer.set_result, report)

        if not self._thread.is_alive():
            self._thread.start()
        self._work.put(work)
        return await answer

    async def close(self) -> None:
        """Ends a judgement that is under way, too. Nothing can be run afterwards."""
        self._closing = True
        if not self._thread.is_alive():
            return
        self._work.put(None)
        await asyncio.to_thread(self._thread.join, 0.2)
        judge = self._judge
        if self._thread.is_alive() and judge is not None:
            # In the middle of a judgement: its processes are ended, and the thread follows.
            judge.close()
        await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)

    def _ready_judge(self) -> Judge:
        if self._judge is None:
            self._judge = Judge(self._platform)
        return self._judge

    def _serve(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                work()
        finally:
            if self._judge is not None:
                self._judge.close()
