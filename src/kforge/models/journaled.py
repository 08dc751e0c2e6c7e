"""A reply is kept the moment it is there, and never asked for twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kforge.models.face import Model
from kforge.types import Completion, Prompt


class Journal(Protocol):
    """Where replies of one run are kept, by slot."""

    def find(self, slot: str) -> Completion | None:
        """The reply that was kept for a slot."""
        ...

    def keep(self, slot: str, completion: Completion, prompt: Prompt) -> None:
        """Keep a reply; it is safe when this returns."""
        ...


@dataclass(frozen=True)
class Journaled:
    """A model whose replies are in a journal before anyone sees them."""

    model: Model
    journal: Journal

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, prompt: Prompt) -> Completion:
        slot = f"{prompt.purpose}:{prompt.sample}"
        kept = self.journal.find(slot)
        if kept is not None:
            return kept
        completion = await self.model.complete(prompt)
        self.journal.keep(slot, completion, prompt)
        return completion

    async def close(self) -> None:
        await self.model.close()
