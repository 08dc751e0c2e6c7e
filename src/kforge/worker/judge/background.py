"""What goes on beside a measurement: programs being loaded, baselines being compiled; and how to have it stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_PATIENCE_SECONDS = 30.0


class Background:
    """Work that may touch the device without holding it. A second look at a suspicious time asks for quiet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._quiet_wanted = 0

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Begin background work as soon as nobody wants quiet, and count it for the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._quiet_wanted)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[bool]:
        """Let what is under way end, within reason, and nothing new begin, for the block; says whether it is quiet."""
        with self._changed:
            self._quiet_wanted += 1
            rests = self._changed.wait_for(lambda: not self._working, timeout=_PATIENCE_SECONDS)
        try:
            yield rests
        finally:
            with self._changed:
                self._quiet_wanted -= 1
                self._changed.notify_all()
