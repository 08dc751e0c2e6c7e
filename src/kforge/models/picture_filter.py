"""Pictures as the model inside takes them: sized for its provider, or left out with a note where it reads none."""

from __future__ import annotations

import re
from dataclasses import replace

from kforge.errors import ModelRejected, ModelUnavailable
from kforge.models.base import Model
from kforge.models.picture_sizes import PictureLimits, fit_pictures
from kforge.models.wrapper import ModelWrapper
from kforge.types import Completion, Message, Prompt

_BLIND = "this model reads no pictures"
_ABOUT_PICTURES = re.compile(
    r"image|\bvision\b|multi-?modal|mmproj|content (?:type|part|must be a string)", re.IGNORECASE
)
"""What providers and servers say when a request's pictures are the trouble."""


class Sighted(ModelWrapper):
    """A model that is never sent more of a picture than it takes.

    Whether a model reads pictures is often known only to its server: a refusal that speaks of them is answered by
    asking again without, once, and no more are sent after that.
    """

    def __init__(self, model: Model, limits: PictureLimits, reads: bool = True) -> None:
        super().__init__(model)
        self._limits = limits
        self._reads = reads

    async def complete(self, prompt: Prompt) -> Completion:
        if not any(message.images for message in prompt.messages):
            return await self.model.complete(prompt)
        if self._reads:
            try:
                return await self.model.complete(size_pictures(prompt, self._limits))
            except (ModelRejected, ModelUnavailable) as error:
                if not _ABOUT_PICTURES.search(str(error)):
                    raise
                self._reads = False
        return await self.model.complete(without_pictures(prompt))


def size_pictures(prompt: Prompt, limits: PictureLimits) -> Prompt:
    """The prompt with its pictures brought down to the limits, and a note about those that cannot be."""
    return replace(prompt, messages=tuple(_size_message(message, limits) for message in prompt.messages))


def without_pictures(prompt: Prompt, why: str = _BLIND) -> Prompt:
    """The prompt's text alone, and a note where pictures were."""
    return replace(prompt, messages=tuple(_strip_message(message, why) for message in prompt.messages))


def _size_message(message: Message, limits: PictureLimits) -> Message:
    kept, problems = fit_pictures(message.images, limits)
    if kept == message.images:
        return message
    return replace(message, text=_add_note(message.text, len(problems), "; ".join(problems)), images=kept)


def _strip_message(message: Message, why: str) -> Message:
    if not message.images:
        return message
    return replace(message, text=_add_note(message.text, len(message.images), why), images=())


def _add_note(text: str, left_out: int, why: str) -> str:
    if not left_out:
        return text
    what = "1 picture was" if left_out == 1 else f"{left_out} pictures were"
    return f"{text.rstrip()}\n\nNote: {what} left out ({why}). Go by the text, whatever it says above about pictures.\n"
