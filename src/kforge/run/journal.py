"""The journal of one run: a reply is on disk the moment it is there, and in the store right after.

The file comes first because it takes microseconds and cannot be refused: a process that is killed, or a database that
is away when an expensive reply arrives, loses nothing. What the file knows and the store does not is handed over when
the run is opened again.
"""

from __future__ import annotations

import json
import os

from kforge import jsonable
from kforge.errors import StoreError, WireError
from kforge.store.store import Store
from kforge.types import Completion, Prompt


class RunJournal:
    """Replies of a run by slot. Open it only while the run is held."""

    def __init__(self, store: Store, run: str, keep_prompts: bool = False) -> None:
        self._store = store
        self._run = run
        self._keep_prompts = keep_prompts
        self._path = store.place.folder / "replies" / f"{run}.jsonl"
        self._recover()
        self._file = self._open()

    def find(self, slot: str) -> Completion | None:
        """The reply kept for a slot."""
        return self._store.call(self._run, slot)

    def catch(self, slot: str, prompt_id: str, completion: Completion) -> None:
        """Write a reply to the file; it survives the process when this returns."""
        entry = {"slot": slot, "prompt": prompt_id, "completion": jsonable.encode(completion)}
        self._append(json.dumps(entry).encode() + b"\n")

    def keep(self, slot: str, completion: Completion, prompt: Prompt) -> None:
        """Hand a reply to the store."""
        self._store.save_call(self._run, slot, completion, prompt.id, prompt if self._keep_prompts else None)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def forget(self) -> None:
        """Everything is in the store: the file is not needed any more."""
        self._path.unlink(missing_ok=True)

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}: replies could not be kept there") from None

    def _append(self, line: bytes) -> None:
        """One write at the end; StoreError if it did not all fit."""
        try:
            written = os.write(self._file, line)
        except OSError as error:
            what = f"{self._path}: {error.strerror}: a model's reply could not be kept; free some space"
            raise StoreError(what) from None
        if written != len(line):
            raise StoreError(f"{self._path}: the disk is full: a model's reply could not be kept; free some space")

    def _recover(self) -> None:
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
                completion = jsonable.decode(Completion, entry["completion"])
                slot, prompt = str(entry["slot"]), str(entry["prompt"])
            except (ValueError, KeyError, TypeError, WireError):
                # The last line of a process that was killed while it wrote.
                continue
            if self._store.call(self._run, slot) is None:
                self._store.save_call(self._run, slot, completion, prompt)
        # All of it is in the store now; a torn last line must not swallow the next one.
        self._path.unlink(missing_ok=True)
