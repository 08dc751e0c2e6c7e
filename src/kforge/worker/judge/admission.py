"""Who is judged at once: several programs side by side, or one that needs the whole device alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(eq=False)
class Visit:
    """One program's time with the judge."""

    had_company: bool = False
    """Whether another program was there at any time of it."""


class Admission:
    """Lets programs in. One that asks to be alone waits until the others are through, and nobody enters meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: list[Visit] = []
        self._wanting_alone = 0
        self._alone = False

    @contextlib.contextmanager
    def among_others(self) -> Iterator[Visit]:
        """Enter beside whoever is there."""
        visit = Visit()
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._wanting_alone)
            for other in self._inside:
                other.had_company = visit.had_company = True
            self._inside.append(visit)
        try:
            yield visit
        finally:
            with self._changed:
                self._inside.remove(visit)
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Enter when nobody is there. Whoever asks must have left before."""
        with self._changed:
            self._wanting_alone += 1
            try:
                self._changed.wait_for(lambda: not self._alone and not self._inside)
                self._alone = True
            finally:
                self._wanting_alone -= 1
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
