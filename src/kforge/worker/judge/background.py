"""What goes on beside a measurement: programs being loaded and compiled, baselines too; and how to have it stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_PATIENCE_SECONDS = 30.0

Freeze = Callable[[], contextlib.AbstractContextManager[bool]]
"""Keeps a process from running for a block; says whether it stands still."""


class Background:
    """Work that may touch the device without holding it. A second look at a suspicious time asks for quiet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._quiet_wanted = 0
        self._freezable: list[Freeze] = []

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
    def long_work(self, freeze: Freeze) -> Iterator[None]:
        """A part of `work` that may take a minute: whoever wants quiet freezes it, and does not wait for its end."""
        with self._changed:
            self._working -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._quiet_wanted)
            self._freezable.append(freeze)
        try:
            yield
        finally:
            with self._changed:
                self._changed.wait_for(lambda: not self._quiet_wanted)
                self._freezable.remove(freeze)
                self._working += 1

    @contextlib.contextmanager
    def quiet(self) -> Iterator[bool]:
        """Freeze what can be, let the rest end, within reason, and nothing new begin; says whether it is quiet."""
        with contextlib.ExitStack() as frozen:
            with self._changed:
                self._quiet_wanted += 1
                frozen.callback(self._end_quiet)
                rests = self._changed.wait_for(lambda: not self._working, timeout=_PATIENCE_SECONDS)
                for freeze in self._freezable:
                    rests = frozen.enter_context(freeze()) and rests
            yield rests

    def _end_quiet(self) -> None:
        with self._changed:
            self._quiet_wanted -= 1
            self._changed.notify_all()
