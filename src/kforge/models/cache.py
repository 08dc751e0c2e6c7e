"""Replies kept in a folder, so that the same question is paid for once."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from kforge import jsonable
from kforge.errors import UsageError, WireError
from kforge.models.base import Model
from kforge.models.wrapper import ModelWrapper
from kforge.types import Completion, Finish, ModelSettings, Prompt
from kforge.whole_file import write_whole

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Entry:
    """What a cache file holds. Of the prompt, only its hash, in the file's name."""

    model: str
    text: str


class Caching(ModelWrapper):
    """Answers from a folder what was asked before: same prompt and draw, same model, same settings.

    A cached reply costs nothing. Replies that were cut off, filtered or refused are not kept. A damaged entry counts
    as absent. Files are private.
    """

    def __init__(self, model: Model, folder: str | Path, settings: ModelSettings = ModelSettings()) -> None:
        """`settings` are those the model was opened with. Raises UsageError if the folder cannot be made."""
        super().__init__(model)
        self._folder = Path(folder).expanduser()
        self._settings = {
            "temperature": settings.temperature,
            "max_output_tokens": settings.max_output_tokens,
            "base_url": settings.base_url,
        }
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the cache folder {folder} cannot be made: {error.strerror or error}") from None

    async def complete(self, prompt: Prompt) -> Completion:
        path = self._path(prompt)
        entry = _read(path)
        if entry is not None:
            return Completion(entry.text, entry.model)
        completion = await self.model.complete(prompt)
        if completion.finish is Finish.STOP:
            _keep(path, _Entry(completion.model, completion.text))
        return completion

    def _path(self, prompt: Prompt) -> Path:
        question = json.dumps([prompt.id, self.name, self._settings], sort_keys=True)
        return self._folder / f"{hashlib.sha256(question.encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> _Entry | None:
    try:
        return jsonable.decode(_Entry, json.loads(path.read_bytes()))
    except (OSError, ValueError, WireError):
        return None


def _keep(path: Path, entry: _Entry) -> None:
    try:
        write_whole(path, json.dumps(jsonable.encode(entry)).encode(), mode=0o600)
    except OSError as error:
        # The reply is paid for: it is worth more than its copy.
        _log.warning("a reply could not be cached in %s: %s", path.parent, error.strerror or error)
