"""Exchanges with a model as lines of a file, which `replay:FILE` answers from."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kforge import jsonable
from kforge.errors import UsageError, WireError
from kforge.models.base import Model
from kforge.models.wrapper import ModelWrapper
from kforge.types import Completion, Finish, Image, Prompt, Usage

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exchange:
    """One question and its reply: one line of a recording."""

    purpose: Literal["generate", "analyse"]
    sample: str
    model: str
    prompt_id: str
    prompt: str
    """The text that was asked."""
    reply: str
    finish: Finish = Finish.STOP
    usage: Usage = Usage()
    """What the reply cost when it was recorded."""
    images: tuple[str, ...] = ()
    """The prompt's images: media type and SHA-256, not the pictures."""

    @property
    def slot(self) -> tuple[str, str]:
        """What a replay finds an exchange by. Prompts hold timings, so their text differs between machines."""
        return self.purpose, self.sample


class Recording(ModelWrapper):
    """Appends every exchange with a model to a file. The prompts' texts are in it; the file is private."""

    def __init__(self, model: Model, path: str | Path) -> None:
        """Raises UsageError if the file cannot be written."""
        super().__init__(model)
        self._path = Path(path).expanduser()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._append(b"")
        except OSError as error:
            raise UsageError(f"cannot record to {path}: {error.strerror or error}") from None

    async def complete(self, prompt: Prompt) -> Completion:
        completion = await self.model.complete(prompt)
        images = tuple(_describe(image) for message in prompt.messages for image in message.images)
        exchange = Exchange(
            purpose=prompt.purpose,
            sample=prompt.sample,
            model=completion.model,
            prompt_id=prompt.id,
            prompt=prompt.text,
            reply=completion.text,
            finish=completion.finish,
            usage=completion.usage,
            images=images,
        )
        try:
            self._append(json.dumps(jsonable.encode(exchange)).encode() + b"\n")
        except OSError as error:
            # The reply is paid for: it is worth more than its copy.
            _log.warning("an exchange could not be recorded in %s: %s", self._path, error.strerror or error)
        return completion

    def _append(self, line: bytes) -> None:
        # One write in append mode: the lines of several processes do not mix.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def read_exchanges(path: str | Path) -> list[Exchange]:
    """All lines of a recording, in order; raises UsageError that names file and line."""
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the recording {path}: {getattr(error, 'strerror', None) or error}") from None
    recorded = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            recorded.append(jsonable.decode(Exchange, json.loads(line)))
        except (ValueError, WireError) as error:
            raise UsageError(f"{path}:{number}: not a recorded exchange: {error}") from None
    return recorded


def _describe(image: Image) -> str:
    return f"{image.media_type} {hashlib.sha256(image.data).hexdigest()}"
