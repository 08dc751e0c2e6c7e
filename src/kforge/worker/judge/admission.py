"""Who is judged at once: as many programs as the device's memory has room for, or one that needs all of it alone."""

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
    needed_bytes: int = 0
    """Of the device's memory, from when there was room for it."""


class Admission:
    """Lets programs in. One that asks to be alone waits until the others are through, and nobody enters meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: list[Visit] = []
        self._wanting_alone = 0
        self._alone = False
        self._wanting_room: list[Visit] = []

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

    def wait_for_room(self, visit: Visit, needed_bytes: int, all_bytes: int) -> int:
        """Wait until a program's share of the device's memory is free of others' shares, or nobody has one.

        First come, first served: a large one is not passed by small ones for ever. Returns what all that were let in
        need together.
        """
        with self._changed:
            self._wanting_room.append(visit)
            try:
                self._changed.wait_for(lambda: self._has_room(visit, needed_bytes, all_bytes))
                visit.needed_bytes = needed_bytes
                return sum(other.needed_bytes for other in self._inside)
            finally:
                self._wanting_room.remove(visit)
                self._changed.notify_all()

    def lower_share(self, visit: Visit, part: float) -> None:
        """Leave a part of a program's share to others; it keeps the rest until the end."""
        with self._changed:
            visit.needed_bytes = int(part * visit.needed_bytes)
            self._changed.notify_all()

    def _has_room(self, visit: Visit, needed_bytes: int, all_bytes: int) -> bool:
        taken = sum(other.needed_bytes for other in self._inside)
        return self._wanting_room[0] is visit and (not taken or taken + needed_bytes <= all_bytes)

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
