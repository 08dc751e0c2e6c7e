"""The device for a program that is run alone: given when it is ready to make its calls, taken back when they are made.

Starting a process behind a tool takes many times longer than its calls, and needs no device for itself.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from kforge.worker.judge.lease import Lease
from kforge.worker.judge.runner_handle import RunnerHandle

_BYE_SECONDS = 2.0


class DeviceTurn:
    """One turn of a program at the device: `begin` once, then `end`."""

    def __init__(self, lease: Lease, seconds: float) -> None:
        """`seconds`: how long it may take to get ready, and how long its calls may take."""
        self.lease = lease
        self._seconds = seconds
        self._ours, self.theirs = socket.socketpair()
        self._thread: threading.Thread | None = None
        self.held_seconds = 0.0

    def begin(self, runner: RunnerHandle) -> None:
        """Wait, in a thread, for the program behind this runner to be ready; one that takes too long is killed."""
        self._thread = threading.Thread(target=self._serve, args=(runner,), name="kforge-turn", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The program is gone, or was never there."""
        with contextlib.suppress(OSError):
            self.theirs.close()
        if self._thread is not None:
            self._thread.join(_BYE_SECONDS)
        with contextlib.suppress(OSError):
            self._ours.close()

    def _serve(self, runner: RunnerHandle) -> None:
        if not self._is_told(runner):
            return
        with self.lease.hold():
            began = time.monotonic()
            with contextlib.suppress(OSError):
                self._ours.sendall(b"g")
                self._is_told(runner)
            self.held_seconds = time.monotonic() - began

    def _is_told(self, runner: RunnerHandle) -> bool:
        """Wait for a word of the program; False where it is gone instead. It is killed where it says nothing."""
        try:
            self._ours.settimeout(self._seconds)
            return bool(self._ours.recv(1))
        except TimeoutError:
            runner.kill()
            return False
        except OSError:
            return False
