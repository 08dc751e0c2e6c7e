"""Who is judged at once: as many programs as the device's memory has room for, or one that needs all of it alone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

IDLE_PART, _BEGINNING_PART = 0.3, 0.3
"""Of what judging a program takes of the device's memory: what its problem holds when nothing is judged, which is
inputs and eager; and what a program takes that is compiled, but neither checked nor timed yet. Both are estimates:
with 0.45 for the second, 50 to 96 of an H200's 144 thousand MiB were in use while programs waited for room.
"""
_MOST_ARRIVING = 4
"""Problems that are read, or wait for room: each holds memory for nothing meanwhile."""
_MOST_PASSES, _MOST_PASSES_INSIDE = 32, 8
"""How many programs may come before one that keeps all others out, for the device stands idle while they leave; and
before one that waits for the rest of its share.
"""


@dataclass(eq=False)
class Visit:
    """One program's time with the judge."""

    had_company: bool = False
    """Whether another program was there at any time of it."""
    needed_bytes: int = 0
    """Its share of the device's memory, from when there was room for it."""
    whole_bytes: int = 0
    """What its share is to be when it is checked and timed."""
    passes: int = 0
    """How many were let in before it while it waited."""
    waited_seconds: float = 0.0
    """For room, so far."""

    @property
    def beginning_bytes(self) -> int:
        """Its share until it is checked."""
        return int(_BEGINNING_PART * self.whole_bytes)


class Admission:
    """Lets programs in, each with a share of the device's memory: a part of it to be compiled, the whole to be timed.

    One that needs more than half of the memory, or asks to be alone, keeps others out and is let in when nobody else
    comes, or so many went before it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: list[Visit] = []
        self._wanting_alone: list[Visit] = []
        self._alone = False
        self._arriving = 0
        self._wanting_room: list[Visit] = []
        self._beginning: list[Visit] = []
        """Who has a part of its share and will want the rest."""
        self._wanting_rest: list[Visit] = []

    @contextlib.contextmanager
    def among_others(self) -> Iterator[Visit]:
        """Enter beside whoever is there."""
        visit = Visit()
        with self._changed:
            self._changed.wait_for(self._may_enter)
            for other in self._inside:
                other.had_company = visit.had_company = True
            self._inside.append(visit)
            for waiting in self._wanting_alone:
                waiting.passes += 1
        try:
            yield visit
        finally:
            with self._changed:
                self._inside.remove(visit)
                if visit in self._beginning:
                    self._beginning.remove(visit)
                self._changed.notify_all()

    def _may_enter(self) -> bool:
        return not self._alone and all(waiting.passes < _MOST_PASSES for waiting in self._wanting_alone)

    @contextlib.contextmanager
    def arrival(self) -> Iterator[None]:
        """A block in which a problem is read and room is waited for; a few are in it at once."""
        with self._changed:
            self._changed.wait_for(lambda: self._arriving < _MOST_ARRIVING)
            self._arriving += 1
        try:
            yield
        finally:
            with self._changed:
                self._arriving -= 1
                self._changed.notify_all()

    def wait_for_room(self, visit: Visit, whole_bytes: int, all_bytes: int) -> int:
        """Wait until a program can begin: there is room for a part of its share, and for the rest when others left.

        Whoever is there alone has all of it at once. Returns what all that were let in have together.
        """
        with self._changed, _waiting(visit):
            visit.whole_bytes, visit.passes = whole_bytes, 0
            self._wanting_room.append(visit)
            try:
                self._changed.wait_for(lambda: self._can_begin(visit, all_bytes))
                for other in self._wanting_room[: self._wanting_room.index(visit)]:
                    other.passes += 1
                visit.needed_bytes = whole_bytes
                if len(self._inside) > 1:
                    visit.needed_bytes = visit.beginning_bytes
                    self._beginning.append(visit)
                return self._taken()
            finally:
                self._wanting_room.remove(visit)
                self._changed.notify_all()

    def wait_for_the_rest(self, visit: Visit, all_bytes: int) -> int:
        """Wait until a program that began can have all of its share; returns what all have together then."""
        with self._changed, _waiting(visit):
            if visit not in self._beginning:
                return self._taken()
            visit.passes = 0
            self._wanting_rest.append(visit)
            try:
                self._changed.wait_for(lambda: self._can_have_the_rest(visit, all_bytes))
                for other in self._wanting_rest[: self._wanting_rest.index(visit)]:
                    other.passes += 1
                self._beginning.remove(visit)
                visit.needed_bytes = visit.whole_bytes
                return self._taken()
            finally:
                self._wanting_rest.remove(visit)
                self._changed.notify_all()

    def _can_have_the_rest(self, visit: Visit, all_bytes: int) -> bool:
        earlier = self._wanting_rest[: self._wanting_rest.index(visit)]
        if any(other.passes >= _MOST_PASSES_INSIDE for other in earlier):
            return False
        others = self._taken() - visit.needed_bytes
        return not others or others + visit.whole_bytes <= all_bytes

    def has_whole_share(self, visit: Visit) -> bool:
        """Whether a program need not wait for the rest of its share."""
        with self._changed:
            return visit not in self._beginning

    def lower_share(self, visit: Visit, part: float) -> None:
        """Leave a part of a program's share to others; it keeps the rest until the end."""
        with self._changed:
            visit.needed_bytes = int(part * visit.needed_bytes)
            self._changed.notify_all()

    def _taken(self) -> int:
        return sum(visit.needed_bytes for visit in self._inside)

    def _can_begin(self, visit: Visit, all_bytes: int) -> bool:
        others = [other for other in self._wanting_room if other is not visit]
        if any(self._comes_before(other, visit, all_bytes) for other in others):
            return False
        taken = self._taken()
        if not taken:
            return True
        taken += sum(int(IDLE_PART * other.whole_bytes) for other in others)
        # Whichever of those that began wants the rest first can have it, when those that have theirs left.
        beginning = [*self._beginning, visit]
        rest = max(each.whole_bytes - each.beginning_bytes for each in beginning)
        begun = sum(each.beginning_bytes for each in beginning)
        return taken + visit.beginning_bytes <= all_bytes and begun + rest <= all_bytes

    def _comes_before(self, one: Visit, other: Visit, all_bytes: int) -> bool:
        """First come, first served; but who keeps others out is passed by them for a while."""
        first, second = sorted((one, other), key=self._wanting_room.index)
        patient = first.whole_bytes > all_bytes // 2 >= second.whole_bytes and first.passes < _MOST_PASSES
        return (one is second) if patient else (one is first)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Enter when nobody is there. Whoever asks must have left before."""
        visit = Visit()
        with self._changed:
            self._wanting_alone.append(visit)
            try:
                self._changed.wait_for(lambda: not self._alone and not self._inside)
                self._alone = True
            finally:
                self._wanting_alone.remove(visit)
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


@contextlib.contextmanager
def _waiting(visit: Visit) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        visit.waited_seconds += time.monotonic() - began
