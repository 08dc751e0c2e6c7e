"""The right to use a device for measuring: one holder at a time, in this process and among all on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOK_AGAIN = 0.002
_SAY_SO = 1.0


class Lease:
    """The lease of a device, held while it judges. `busy_seconds` is how long it was, in all.

    Among processes there are two locks: whoever waits for the device holds the queue, so that a process with much to do
    does not take the device again and again while another waits.
    """

    def __init__(self, path: Path | None = None) -> None:
        """`path`: a file whose lock keeps other processes out; None where none could disturb."""
        self._path = path
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._device: _FileLock | None = None
        self._began = 0.0
        self._of_thread = threading.local()
        self.busy_seconds = 0.0

    @property
    def thread_seconds(self) -> float:
        """How long the calling thread has held it, in all."""
        return getattr(self._of_thread, "seconds", 0.0)

    @contextlib.contextmanager
    def hold(self, tell: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Wait for the device, then keep it for the block."""
        self._take(tell)
        try:
            yield
        finally:
            self._give_back()

    @contextlib.contextmanager
    def lend(self) -> Iterator[None]:
        """Let others have the device for the block; whoever holds it holds it again afterwards."""
        self._give_back()
        try:
            yield
        finally:
            self._take(lambda _: None)

    def _take(self, tell: Callable[[str], None]) -> None:
        self._lock.acquire()
        try:
            if self._path is not None:
                queue = _FileLock(self._path.with_name(self._path.name + ".queue"))
                try:
                    queue.wait(tell)
                    self._device = _FileLock(self._path)
                    self._device.wait(tell)
                finally:
                    queue.release()
            self._began = time.monotonic()
            self._holder = threading.get_ident()
        except BaseException:
            self._release()
            raise

    def _give_back(self) -> None:
        if self._holder != threading.get_ident():
            # Lent, and never got back: whoever waited for it was stopped.
            return
        spent = time.monotonic() - self._began
        self.busy_seconds += spent
        self._of_thread.seconds = self.thread_seconds + spent
        self._release()

    def _release(self) -> None:
        self._holder = None
        if self._device is not None:
            self._device.release()
            self._device = None
        self._lock.release()


def _open_lock_file(path: Path) -> int:
    """The file, made if need be. Asking to make it where it is another user's may be refused in a shared folder."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


class _FileLock:
    """A file's lock. Where the file cannot be made, every wait is over at once: then only this process is in order."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = _open_lock_file(path)
            # For every user of this machine, whatever the mask says; its owner made it so already.
            with contextlib.suppress(PermissionError):
                os.fchmod(self._descriptor, 0o666)

    def wait(self, tell: Callable[[str], None]) -> None:
        began, announced = time.monotonic(), False
        while self._descriptor >= 0 and not self._try_lock():
            if not announced and time.monotonic() - began > _SAY_SO:
                tell("waiting for the device: another KForge process measures on it")
                announced = True
            time.sleep(_LOOK_AGAIN)

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # A file system without locks.
            self.release()
        return True

    def release(self) -> None:
        """Give the lock up, by closing the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
