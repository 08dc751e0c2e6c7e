"""What is asked of a model: a prompt in, a completion out. Wrappers are models too."""

from __future__ import annotations

from typing import Protocol

from kforge.types import Completion, Prompt


class Model(Protocol):
    """Anything that answers prompts."""

    @property
    def name(self) -> str:
        """What the user calls it: openai:gpt-5, command:..., mailbox:DIR."""
        ...

    async def complete(self, prompt: Prompt) -> Completion:
        """The reply. ModelUnavailable if asking again may help, another ModelError if not."""
        ...

    async def close(self) -> None:
        """Let go of connections and processes."""
        ...
