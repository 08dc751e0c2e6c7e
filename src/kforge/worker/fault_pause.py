"""Devices, or workers, that could not do what they were asked for, and how long they are left alone.

What fails at once is always idle, and would attract all work. But it may have been the work's own fault, or be well
again: so the pause is short at first.
"""

from __future__ import annotations

import time
from collections.abc import Hashable

_FIRST_SECONDS, _LONGEST_SECONDS = 15.0, 300.0


class FaultPauses:
    """Who is left alone now."""

    def __init__(self) -> None:
        self._faults: dict[Hashable, tuple[int, float]] = {}
        """How often each was at fault since it last did its work, and when it may be asked again."""

    def begin(self, who: Hashable) -> None:
        """It was at fault: it is left alone, for longer each time."""
        count, _ = self._faults.get(who, (0, 0.0))
        self._faults[who] = (count + 1, time.monotonic() + alone_seconds(count))

    def end(self, who: Hashable) -> None:
        """It did its work."""
        self._faults.pop(who, None)

    def holds(self, who: Hashable) -> bool:
        """Whether it is left alone now."""
        # One look: another thread may end the pause between two.
        _, until = self._faults.get(who, (0, 0.0))
        return until > time.monotonic()


def alone_seconds(times_before: int) -> float:
    """The pause after a fault, with so many before it that no success came between."""
    return float(min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(times_before, 10)))
