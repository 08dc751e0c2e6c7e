"""What goes on beside a measurement: programs being loaded and compiled, baselines too; and how to have it stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_PATIENCE_SECONDS = 30.0

Freeze = Callable[[], contextlib.AbstractContextManager[bool]]
"""Keeps a process from running for a block; says whether it stands still."""


class Background:
    """Work that may touch the device without holding it.

    A measurement asks for calm: programs that compile, and tune themselves, stand still. A second look at a suspicious
    time asks for quiet.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._quiet_wanted = 0
        self._still_wanted = 0
        self._freezable: list[Freeze] = []
        self._frozen = contextlib.ExitStack()
        self._stands = True

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
        """A part of `work` that may take a minute: it is frozen for a measurement, and nobody waits for its end."""
        with self._changed:
            self._working -= 1
            self._changed.notify_all()
        try:
            with self._changed:
                self._changed.wait_for(self._may_go_on)
                self._freezable.append(freeze)
            try:
                yield
            finally:
                with self._changed:
                    try:
                        self._changed.wait_for(self._may_go_on)
                    finally:
                        self._freezable.remove(freeze)
        finally:
            with self._changed:
                self._working += 1

    @property
    def is_frozen(self) -> bool:
        """Whether long work stands still: what it had launched before may still be on the device."""
        return self._still_wanted > 0 and bool(self._freezable)

    def _may_go_on(self) -> bool:
        return not self._quiet_wanted and not self._still_wanted

    @contextlib.contextmanager
    def calm(self) -> Iterator[bool]:
        """Keep long work frozen for the block; says whether it is. What is short goes on."""
        with self._changed:
            self._still_wanted += 1
        try:
            with self._changed:
                if self._still_wanted == 1:
                    stand = [self._frozen.enter_context(freeze()) for freeze in self._freezable]
                    self._stands = all(stand)
            yield self._stands
        finally:
            with self._changed:
                self._still_wanted -= 1
                if not self._still_wanted:
                    self._frozen.close()
                self._changed.notify_all()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[bool]:
        """Let what is short end as well, within reason, and nothing new begin; says whether it is quiet."""
        with self._changed:
            self._quiet_wanted += 1
        try:
            with self._changed:
                rests = self._changed.wait_for(lambda: not self._working, timeout=_PATIENCE_SECONDS)
            with self.calm() as stands:
                yield rests and stands
        finally:
            with self._changed:
                self._quiet_wanted -= 1
                self._changed.notify_all()
