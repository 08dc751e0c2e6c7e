"""`replay:FILE`: replies from a recording."""

from __future__ import annotations

from pathlib import Path

from kforge.errors import NothingRecorded
from kforge.models.base import ModelPlugin
from kforge.models.prices import FREE, Rate
from kforge.models.recordings import Exchange, read_exchanges
from kforge.types import Completion, ModelSettings, Prompt


class Replay:
    """A recording as a model: answers each slot with what was recorded for it first. A replayed reply costs nothing."""

    rate: Rate = FREE

    def __init__(self, path: str | Path) -> None:
        """Reads the whole file; raises UsageError that names the line that cannot be read."""
        self._path = path
        self._replies: dict[tuple[str, str], Exchange] = {}
        for exchange in read_exchanges(path):
            self._replies.setdefault(exchange.slot, exchange)

    @property
    def name(self) -> str:
        return f"replay:{self._path}"

    async def complete(self, prompt: Prompt) -> Completion:
        exchange = self._replies.get((prompt.purpose, prompt.sample))
        if exchange is None:
            raise NothingRecorded(f"{self._path} holds no reply for {prompt.purpose} {prompt.sample!r}")
        return Completion(exchange.reply, exchange.model, finish=exchange.finish)

    async def close(self) -> None:
        """Nothing is held open."""


class ReplayPlugin(ModelPlugin):
    name = "replay"
    form = "replay:FILE"
    what = "a recording"

    def open(self, argument: str, settings: ModelSettings) -> Replay:
        return Replay(argument)


PLUGIN = ReplayPlugin()
