"""A model whose replies are written in advance: for tests, benchmarks and trying things out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kforge.errors import NothingRecorded
from kforge.models.prices import FREE, Rate
from kforge.types import Completion, Prompt

Reply = str | Completion | Exception
"""What a script may say: a text, a whole completion, or an error to raise."""


class Scripted:
    """Answers from a list, in order, or by a function of the prompt."""

    def __init__(
        self, replies: Iterable[Reply] | Callable[[Prompt], Reply], *, name: str = "scripted", rate: Rate | None = FREE
    ) -> None:
        self._name = name
        self._reply = replies if callable(replies) else _reply_in_order(replies)
        self.rate = rate
        self.asked: list[Prompt] = []
        """Every prompt so far."""
        self.closed = False

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, prompt: Prompt) -> Completion:
        self.asked.append(prompt)
        reply = self._reply(prompt)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Completion) else Completion(reply, self._name)

    async def close(self) -> None:
        self.closed = True


def _reply_in_order(replies: Iterable[Reply]) -> Callable[[Prompt], Reply]:
    left = iter(tuple(replies))

    def next_reply(prompt: Prompt) -> Reply:
        end = NothingRecorded(f"the script has no reply left for {prompt.purpose} {prompt.sample!r}")
        return next(left, end)

    return next_reply
