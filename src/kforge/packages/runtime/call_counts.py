"""How often the program ran, how often the reference ran in its place, and why."""

from __future__ import annotations

import itertools
import threading
import warnings
from typing import Any

_MOST_REASONS = 20


class FallbackWarning(UserWarning):
    """A call that the program was not verified for: the reference was run in its place."""


class CallCounts:
    """Counts calls; the first that falls back is said as a warning, once."""

    def __init__(self, name: str) -> None:
        self._name = name
        # A step of such a counter is one instruction of the interpreter: nothing is lost between threads.
        self.program = itertools.count()
        self._reference = itertools.count()
        self._lock = threading.Lock()
        self._reasons: dict[str, int] = {}
        self._warned = False

    def fall_back(self, reason: str) -> None:
        """Count a call of the reference, for a reason that is a clause."""
        next(self._reference)
        with self._lock:
            if reason in self._reasons or len(self._reasons) < _MOST_REASONS:
                self._reasons[reason] = self._reasons.get(reason, 0) + 1
            first, self._warned = not self._warned, True
        if first:
            message = (
                f"{self._name}: {reason}; the program was not verified for that, and the PyTorch reference runs in its "
                "place. This is said once: stats() counts such calls, and strict=True makes them errors"
            )
            warnings.warn(message, FallbackWarning, stacklevel=4)

    def stats(self) -> dict[str, Any]:
        """Calls of the program and of the reference so far, and the reasons for the latter."""
        with self._lock:
            reasons = dict(self._reasons)
        return {"program": _value(self.program), "reference": _value(self._reference), "reasons": reasons}

    def reset(self) -> None:
        """Count from 0 again, and warn again."""
        with self._lock:
            self.program, self._reference = itertools.count(), itertools.count()
            self._reasons.clear()
            self._warned = False


def _value(counter: Any) -> int:
    """What a counter has come to, without moving it."""
    return int(repr(counter).removeprefix("count(").removesuffix(")"))
