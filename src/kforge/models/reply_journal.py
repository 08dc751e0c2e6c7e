"""A reply is kept the moment it is there, and never asked for twice.

Two wrappers: `Caught` sits directly on the model and writes the reply down before anything else happens to it;
`Journaled` sits outside all others and answers from the journal what was answered before.
"""

from __future__ import annotations

from typing import Protocol

from kforge.models.base import Model
from kforge.models.wrapper import ModelWrapper
from kforge.types import Completion, Prompt


class Journal(Protocol):
    """Where replies of one run are kept, by slot."""

    def find(self, slot: str) -> Completion | None:
        """The reply that was kept for a slot."""
        ...

    def catch(self, slot: str, prompt_id: str, completion: Completion) -> None:
        """Write a reply down as fast as can be; it survives the process when this returns."""
        ...

    def keep(self, slot: str, completion: Completion, prompt: Prompt) -> None:
        """Keep a reply for good."""
        ...


def slot_of(prompt: Prompt) -> str:
    """The place of a question in its run."""
    return f"{prompt.purpose}:{prompt.sample}"


class Caught(ModelWrapper):
    """A model whose replies are on disk before anyone sees them."""

    def __init__(self, model: Model, journal: Journal) -> None:
        super().__init__(model)
        self._journal = journal

    async def complete(self, prompt: Prompt) -> Completion:
        # All that takes time is done before the reply is there.
        slot, prompt_id = slot_of(prompt), prompt.id
        completion = await self.model.complete(prompt)
        self._journal.catch(slot, prompt_id, completion)
        return completion


class Journaled(ModelWrapper):
    """A model that is not asked what its journal knows."""

    def __init__(self, model: Model, journal: Journal) -> None:
        super().__init__(model)
        self._journal = journal

    async def complete(self, prompt: Prompt) -> Completion:
        slot = slot_of(prompt)
        kept = self._journal.find(slot)
        if kept is not None:
            return kept
        completion = await self.model.complete(prompt)
        self._journal.keep(slot, completion, prompt)
        return completion
