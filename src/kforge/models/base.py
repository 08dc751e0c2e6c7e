"""What is asked of a model: a prompt in, a completion out. Wrappers are models too.

A plug-in opens models: `--model mine:ARGUMENT` is the model that the plug-in `mine` opens with that argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener of waits", default=None)
"""Of the task that asks, so that the wrappers and agents between it and the model need not hand it on."""


@contextmanager
def listen_for_waits(listener: Callable[[str], None]) -> Iterator[None]:
    """While this lasts, `listener` is told what a model that this task asks is waiting for."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell_wait(what: str) -> None:
    """For a model that may wait for hours: what it waits for, such as the path of a file."""
    listener = _listener.get()
    if listener is not None:
        listener(what)
