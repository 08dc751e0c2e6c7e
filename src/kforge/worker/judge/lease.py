"""The right to use a device for measuring: one holder at a time, in this process and among all on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOK_AGAIN = 0.05


class Lease:
    """Held while a device judges. `busy_seconds` is how long it was, in all."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: a file whose lock keeps other processes out; None where none could disturb."""
        self._path = path
        self._lock = threading.Lock()
        self._held_since = 0.0
        self.busy_seconds = 0.0

    @contextlib.contextmanager
    def hold(self, tell: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Wait for it, then keep it for the block."""
        with self._lock, self._among_processes(tell):
            began = time.monotonic()
            try:
                yield
            finally:
                self.busy_seconds += time.monotonic() - began

    @contextlib.contextmanager
    def _among_processes(self, tell: Callable[[str], None]) -> Iterator[None]:
        descriptor = self._open()
        if descriptor is None:
            yield
            return
        try:
            said = False
            while not _try_lock(descriptor):
                if not said:
                    tell("waiting for the device: another KForge process measures on it")
                    said = True
                time.sleep(_LOOK_AGAIN)
            yield
        finally:
            # Closing it gives the lock up.
            os.close(descriptor)

    def _open(self) -> int | None:
        if self._path is None:
            return None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            # Nowhere to keep the file: then only this process is kept in order.
            return None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
