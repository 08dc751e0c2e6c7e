"""What is asked of a model: a prompt in, a completion out. Wrappers are models too.

A plug-in opens models: `--model mine:ARGUMENT` is the model that the plug-in `mine` opens with that argument.
"""

from __future__ import annotations

from typing import Protocol

from kforge.types import Completion, ModelSettings, Prompt


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


class ModelPlugin:
    """Opens the models of one name. Subclass it in `models/plugins/<name>.py`, or in a package of your own."""

    name = ""
    """The file's name: what stands before the colon."""
    form = ""
    """How a user writes it, for whoever got it wrong: `mailbox:DIR`."""
    what = ""
    """Who answers, in a few words."""

    def unavailable_reason(self) -> str:
        """Why no such model can be opened here, with the cure; empty if one can."""
        return ""

    def open(self, argument: str, settings: ModelSettings) -> Model:
        """The bare model; its own name is the whole one, `name:argument`. Nothing is sent.

        Raises UsageError for an argument that makes no sense, PluginAbsent for something that is not installed.
        """
        raise NotImplementedError
