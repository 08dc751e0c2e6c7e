"""A worker: a Dask worker without a nanny, in a process that keeps its judges warm through lost connections.

SIGINT once: what is in hand is finished, and the rest goes to others. Twice: it ends at once, and hands back what it
was at.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any

from distributed import Status, Worker
from distributed.worker import DEFAULT_METRICS, DEFAULT_STARTUP_INFORMATION

from kforge import jsonable
from kforge.cluster.address import ClusterAddress
from kforge.cluster.dask_settings import configure_process, dask_security
from kforge.cluster.device_host import DeviceHost
from kforge.cluster.reachability import SchedulerUnreachable, make_sure_reachable
from kforge.cluster.tasks import TOPIC, set_host
from kforge.models.keys import is_secret

_LOOK_SECONDS = 0.1
_SAY_SECONDS = 1.0
"""Between two words on one job, at least."""
_REMIND_SECONDS = 60.0
_FIRST_BACKOFF = 0.5
_LONGEST_BACKOFF = 10.0
_DELIVERY_SECONDS = 30.0
"""For controllers to fetch what was finished last."""
_STOPPED = 130


class WorkerProcess:
    """Serves one scheduler until it is told to stop."""

    def __init__(
        self, address: ClusterAddress, host: DeviceHost, name: str = "", say: Callable[[str], None] = print
    ) -> None:
        self._address, self._host, self._name, self._say = address, host, name, say
        self._stops = 0
        self._worker: Worker | None = None
        self._spoken: dict[str, float] = {}

    async def serve(self) -> int:
        """0 after what was in hand is finished, 130 where it was broken off."""
        configure_process()
        set_host(self._host)
        self._host.say = self._tell_cluster
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        serving = asyncio.create_task(self._stay_connected())
        try:
            while not self._stops and not serving.done():
                await asyncio.sleep(_LOOK_SECONDS)
            if serving.done():
                # Only for an error: it serves as long as it is let.
                serving.result()
            await self._retire()
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await serving
            await self._host.close()
        return 0 if self._stops < 2 else _STOPPED

    def _stop(self) -> None:
        self._stops += 1
        if self._stops == 1:
            busy = self._host.busy
            what = f"finishing {busy} job{'s' if busy > 1 else ''}; once more ends at once" if busy else "stopping"
            self._say(what)

    async def _retire(self) -> None:
        """Take no more jobs, finish what is in hand, and be gone when it was fetched."""
        self._host.retiring = True
        worker = self._worker
        if worker is not None and worker.status == Status.running:
            worker.status = Status.paused
        while self._stops < 2 and (self._host.busy or _has_unreported(worker)):
            await asyncio.sleep(_LOOK_SECONDS)
        if worker is None or worker.status in (Status.closed, Status.closing):
            return
        if self._stops < 2:
            deadline = time.monotonic() + _DELIVERY_SECONDS
            while len(worker.data) and time.monotonic() < deadline and self._stops < 2:
                await asyncio.sleep(_LOOK_SECONDS)
        else:
            for job in self._host.activity().in_hand:
                self._log(job.key, "handed back")
        with contextlib.suppress(Exception):
            await asyncio.wait_for(worker.close_gracefully(), 5)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(worker.close(timeout=2, executor_wait=False), 5)

    async def _stay_connected(self) -> None:
        backoff, told, told_at = _FIRST_BACKOFF, "", 0.0
        while True:
            try:
                await make_sure_reachable(self._address)
                await self._serve_connected()
                backoff = _FIRST_BACKOFF
                words = f"the scheduler at {self._address.url} is gone; trying again"
            except Exception as error:
                # Whatever it is: an earlier connection that the scheduler still takes for alive has the same name.
                words = f"{_reason(error)}; trying again"
            if self._stops:
                return
            if words != told or time.monotonic() - told_at >= _REMIND_SECONDS:
                self._say(words)
                told, told_at = words, time.monotonic()
            await asyncio.sleep(backoff)
            backoff = min(_LONGEST_BACKOFF, 2 * backoff)

    async def _serve_connected(self) -> None:
        """One connection, until it is lost."""
        with tempfile.TemporaryDirectory(prefix="kforge-worker-") as folder:
            self._worker = worker = self._make_worker(folder)
            try:
                await asyncio.wait_for(_started(worker), 60)
                self._say(f"serving {self._address.url} as {worker.name} ({worker.address})")
                await worker.finished()
            finally:
                if worker.status not in (Status.closed, Status.closing):
                    with contextlib.suppress(Exception):
                        await asyncio.wait_for(worker.close(timeout=2, executor_wait=False), 5)

    def _make_worker(self, folder: str) -> Worker:
        description = self._host.description
        announced = jsonable.encode(description)

        async def describe(_: Worker) -> Any:
            return announced

        async def activity(_: Worker) -> Any:
            return jsonable.encode(self._host.activity())

        return Worker(
            self._address.url,
            nthreads=max(1, description.slots),
            resources=description.resources(),
            name=self._name or f"{description.host}-{description.pid}-{description.start}",
            security=dask_security(self._address),
            host="127.0.0.1" if self._address.is_loopback else None,
            local_directory=folder,
            memory_limit=0,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            metrics={**DEFAULT_METRICS, "kforge": activity},
            startup_information={**DEFAULT_STARTUP_INFORMATION, "kforge": describe},
        )

    def _tell_cluster(self, key: str, words: str) -> None:
        """Whoever waits for a job is told what is being done, not more often than can be read."""
        now = time.monotonic()
        if words != "begun" and now - self._spoken.get(key, -1e9) < _SAY_SECONDS:
            return
        self._spoken = {each: when for each, when in self._spoken.items() if now - when < _SAY_SECONDS}
        self._spoken[key] = now
        self._log(key, words)

    def _log(self, key: str, words: str) -> None:
        description, worker = self._host.description, self._worker
        if worker is None or worker.status not in (Status.running, Status.paused):
            return
        with contextlib.suppress(Exception):
            told = {"key": key, "words": words, "host": description.host, "process": description.process}
            worker.log_event(TOPIC, told)


def _has_unreported(worker: Worker | None) -> bool:
    """Whether Dask has not yet heard of the end of what the host has finished: nobody could fetch it."""
    return worker is not None and worker.status == Status.paused and bool(worker.state.executing)


async def _started(worker: Worker) -> None:
    await worker


def _reason(error: Exception) -> str:
    """What keeps it from connecting. Dask says that a worker failed to start, and only its cause says why."""
    if isinstance(error, (SchedulerUnreachable, OSError, TimeoutError)):
        return str(error) or "the scheduler does not answer"
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    taken = re.search("name taken, ([^']*)", str(error))
    if taken:
        reason = f"one called {taken[1]} is there, or was cut off a moment ago. Wait, or give this one another --name"
    else:
        reason = f"{type(error).__name__}: {error}"
    return f"the scheduler does not take this worker: {reason}"


def serve(address: ClusterAddress, host: DeviceHost, name: str = "", say: Callable[[str], None] = print) -> int:
    """Work for a scheduler until Ctrl-C; the exit status."""
    forget_keys()
    return asyncio.run(WorkerProcess(address, host, name, say).serve())


def forget_keys() -> None:
    """A worker asks no model: nothing that it starts finds a key in its environment."""
    for name in list(os.environ):
        if is_secret(name):
            del os.environ[name]
