"""The device for a program that is run alone: given when it is ready to make its calls, taken back when they are made.

Starting a process behind a tool takes many times longer than its calls, and needs no device for itself.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from kforge.worker.judge.background import Background
from kforge.worker.judge.lease import Lease
from kforge.worker.judge.runner_handle import RunnerHandle

_BYE_SECONDS = 2.0


class DeviceTurn:
    """One turn of a program at the device: `begin` once, then `end`.

    The program says that it is ready, is told to go, and says that its calls are made. What the tool before it does
    then (reading device code, writing tables) is done without the device.
    """

    def __init__(self, lease: Lease, background: Background, seconds: float) -> None:
        """`seconds`: how long each may take: to get ready, its calls, and what comes after them."""
        self.lease = lease
        self._background = background
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
        # Not frozen: a tool takes a program that stands still for one that has ended.
        with self._background.work():
            ready = self._is_told(runner)
        if not ready:
            return
        # The program has its copy by now; with this one open its end would not be seen.
        self.theirs.close()
        with self.lease.hold(), self._background.calm():
            began = time.monotonic()
            with contextlib.suppress(OSError):
                self._ours.sendall(b"g")
                self._is_told(runner)
            self.held_seconds = time.monotonic() - began
        self._wait_for_end(runner)

    def _wait_for_end(self, runner: RunnerHandle) -> None:
        """Let the tool do what it does after the calls, for so long; whatever the program still says is not heard."""
        deadline = time.monotonic() + self._seconds
        while self._is_told(runner, deadline - time.monotonic()):
            pass

    def _is_told(self, runner: RunnerHandle, seconds: float | None = None) -> bool:
        """Wait for a word of the program; False where it is gone instead. It is killed where it says nothing."""
        try:
            self._ours.settimeout(max(0.01, self._seconds if seconds is None else seconds))
            return bool(self._ours.recv(1))
        except TimeoutError:
            runner.kill()
            return False
        except OSError:
            return False
