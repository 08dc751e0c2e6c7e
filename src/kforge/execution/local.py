"""This machine: one warm judge, in a thread of its own, one job at a time."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

from kforge.execution.face import Tell
from kforge.types import Job, Report
from kforge.worker.judge.judge import Judge

_CLOSE_SECONDS = 10.0


class LocalExecutor:
    """Judges on this machine's device. The judge starts with the first job."""

    def __init__(self, platform: str = "cpu") -> None:
        self.machine = asyncio.Lock()
        self._platform = platform
        self._judge: Judge | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: a candidate that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._serve, name="kforge-judge", daemon=True)
        self._started = False

    async def run(self, job: Job, tell: Tell) -> Report:
        async with self.machine:
            return await self._run(job, tell)

    async def _run(self, job: Job, tell: Tell) -> Report:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Report] = loop.create_future()

        def settle(method: Callable[..., None], value: Any) -> None:
            if not answer.done():
                method(value)

        def call(method: Callable[..., None], *arguments: Any) -> None:
            # The loop may be gone by the time a judgement ends: the run was stopped.
            if not loop.is_closed():
                loop.call_soon_threadsafe(method, *arguments)

        def work() -> None:
            if answer.done():
                return
            try:
                report = self._ready_judge().report(job, lambda words: call(tell, words))
            except BaseException as error:
                call(settle, answer.set_exception, error)
            else:
                call(settle, answer.set_result, report)

        if not self._started:
            self._started = True
            self._thread.start()
        self._work.put(work)
        return await answer

    async def close(self) -> None:
        if not self._started:
            return
        self._work.put(None)
        await asyncio.to_thread(self._thread.join, 0.2)
        judge = self._judge
        if self._thread.is_alive() and judge is not None:
            # In the middle of a judgement: its processes are ended, and the thread with them.
            judge.close()
            await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)

    def _ready_judge(self) -> Judge:
        if self._judge is None:
            self._judge = Judge(self._platform)
        return self._judge

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                break
            work()
        if self._judge is not None:
            self._judge.close()
