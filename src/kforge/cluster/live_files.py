"""Live modules of the jobs in hand, as files of this worker's own."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kforge import live_module
from kforge.errors import WireError
from kforge.types import Job


class LiveFiles:
    """One file for each module, as long as a job on it is in hand: they may be large, and a night long."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._holders: Counter[Path] = Counter()

    @contextlib.contextmanager
    def hold(self, job: Job, payload: bytes) -> Iterator[Job]:
        """The job, with its live module's file on this machine; as it is where it has none."""
        problem = job.problem
        if not problem.payload_hash:
            yield job
            return
        if hashlib.sha256(payload).hexdigest() != problem.payload_hash:
            raise WireError("the live module's file was damaged on its way")
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="kforge-live-")
        path = Path(self._folder.name) / live_module.file_name(problem.payload_hash)
        if not self._holders[path]:
            path.write_bytes(payload)
        self._holders[path] += 1
        try:
            yield replace(job, problem=replace(problem, payload=str(path)))
        finally:
            self._holders[path] -= 1
            if not self._holders[path]:
                del self._holders[path]
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove what is left."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
