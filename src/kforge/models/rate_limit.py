"""No more requests at once, or in a minute, than a provider likes."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from kforge.errors import UsageError
from kforge.models.base import Model
from kforge.models.wrapper import ModelWrapper
from kforge.types import Completion, Prompt

MINUTE = 60.0


class Limited(ModelWrapper):
    """Lets at most `concurrency` requests run at once and at most `per_minute` start in any minute; None: no limit."""

    def __init__(
        self,
        model: Model,
        concurrency: int | None = None,
        per_minute: int | None = None,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        if any(limit is not None and limit < 1 for limit in (concurrency, per_minute)):
            raise UsageError("limits on a model's requests must be at least 1")
        self._room: AbstractAsyncContextManager[object] = nullcontext()
        if concurrency is not None:
            self._room = asyncio.Semaphore(concurrency)
        self._per_minute = per_minute
        self._starts: deque[float] = deque()
        self._queue = asyncio.Lock()
        self._sleep = sleep
        self._clock = clock

    def around(self, model: Model) -> Limited:
        """Another model under the same limits: what both ask counts together."""
        twin = copy.copy(self)
        twin.model = model
        return twin

    async def complete(self, prompt: Prompt) -> Completion:
        async with self._room:
            await self._turn()
            return await self.model.complete(prompt)

    async def _turn(self) -> None:
        if self._per_minute is None:
            return
        # Those who wait keep their order: the lock is held while the first of them sleeps.
        async with self._queue:
            while len(self._starts) >= self._per_minute:
                left = self._starts[0] + MINUTE - self._clock()
                if left <= 0:
                    self._starts.popleft()
                else:
                    await self._sleep(left)
            self._starts.append(self._clock())
