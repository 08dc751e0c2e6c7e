"""What those who wait are told, at once and again every minute, and not more often."""

from __future__ import annotations

import time
from collections.abc import Callable

_REMIND_SECONDS = 60.0


class Reminders:
    """What each listener was told last, and when."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[str, float]] = {}

    def remind(self, tell: Callable[[str], None], words: str) -> None:
        """Tell somebody what is missing; with no words, nothing is any longer."""
        if not words:
            self.forget(tell)
            return
        last, when = self._told.get(id(tell), ("", -1e9))
        if last != words or time.monotonic() - when >= _REMIND_SECONDS:
            self._told[id(tell)] = (words, time.monotonic())
            tell(words)

    def forget(self, tell: Callable[[str], None]) -> None:
        """Somebody waits no longer."""
        self._told.pop(id(tell), None)
