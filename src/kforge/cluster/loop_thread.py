"""An event loop in a thread of its own, for what has to outlive the loops of those who ask."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kforge.errors import HarnessError

T = TypeVar("T")
_CLOSE_SECONDS = 10.0


class LoopThread:
    """Starts with the first call. `keep` is what goes on in it all the time."""

    def __init__(self, name: str, keep: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._name, self._keep = name, keep
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives; from any other loop. HarnessError once it is closed."""
        if self._closed:
            work.close()
            raise HarnessError("the executor is closed")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running_loop()))

    async def close(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do `end` in the loop as the last thing, if it ever ran, and stop."""
        if self._closed:
            return
        self._closed = True
        if self._loop is None or self._thread is None:
            return
        with contextlib.suppress(Exception):
            running = asyncio.run_coroutine_threadsafe(end(), self._loop)
            await asyncio.wait_for(asyncio.wrap_future(running), _CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                ready = threading.Event()
                self._thread = threading.Thread(target=self._serve, args=(ready,), name=self._name, daemon=True)
                self._thread.start()
                ready.wait()
            assert self._loop is not None
            return self._loop

    def _serve(self, ready: threading.Event) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._loop = loop
        keeper = loop.create_task(self._keep())
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
