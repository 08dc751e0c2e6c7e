"""Asks again when asking again may help, and waits as long as the provider wants."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kforge.errors import ModelUnavailable
from kforge.models.base import Model
from kforge.models.wrapper import ModelWrapper
from kforge.types import Completion, Prompt


@dataclass(frozen=True)
class Backoff:
    """How patient to be."""

    attempts: int = 6
    """Requests in all, the first one included."""
    first_delay: float = 1.0
    """The longest wait before the second attempt, in seconds; it doubles with each further one."""
    longest_delay: float = 60.0
    """Where doubling ends."""
    patience: float = 300.0
    """The longest wait a provider may ask for; beyond it there is no point in keeping a run waiting."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first_delay < 0 or self.longest_delay < 0 or self.patience < 0:
            raise ValueError("a backoff needs at least one attempt and no negative waits")

    def delay(self, failures: int, retry_after: float | None, chance: float) -> float:
        """Seconds to wait after that many failures; `chance` is in [0, 1).

        Full jitter, so that many chains do not come back at once. What the provider asks for is a floor, and the
        jitter comes on top.
        """
        jitter = chance * min(self.longest_delay, self.first_delay * 2.0 ** (failures - 1))
        return jitter if retry_after is None else retry_after + min(jitter, self.first_delay)


class Retrying(ModelWrapper):
    """Repeats a request that ended in ModelUnavailable; every other error passes through."""

    def __init__(
        self,
        model: Model,
        backoff: Backoff = Backoff(),
        *,
        notify: Callable[[str], None] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`notify` is told, in one sentence, before each wait."""
        super().__init__(model)
        self._backoff = backoff
        self._notify = notify
        self._sleep = sleep
        self._chance = chance

    async def complete(self, prompt: Prompt) -> Completion:
        failures = 0
        while True:
            try:
                return await self.model.complete(prompt)
            except ModelUnavailable as error:
                failures += 1
                delay = self._wait_for(error, failures)
                if self._notify is not None:
                    self._notify(
                        f"{error}; asking again in {delay:.1f} s ({failures} of {self._backoff.attempts} tries)"
                    )
            await self._sleep(delay)

    def _wait_for(self, error: ModelUnavailable, failures: int) -> float:
        """How long to wait; raises if there is no point in going on."""
        requested = error.retry_after
        if requested is not None and requested > self._backoff.patience:
            why = f"the provider asks to wait {requested:.0f} s, longer than {self._backoff.patience:.0f} s"
            raise ModelUnavailable(f"{error}; {why}", retry_after=requested) from None
        if failures >= self._backoff.attempts:
            why = f"gave up after {failures} {'try' if failures == 1 else 'tries'}"
            raise ModelUnavailable(f"{error}; {why}", retry_after=requested) from None
        return self._backoff.delay(failures, requested, self._chance())
