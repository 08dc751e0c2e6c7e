"""How long a device, or a worker, is left alone that could not do what it was asked for.

What fails at once is always idle, and would attract all work. But it may have been the work's own fault, or be well
again: so the pause is short at first.
"""

from __future__ import annotations

_FIRST_SECONDS, _LONGEST_SECONDS = 15.0, 300.0


def alone_seconds(times_before: int) -> float:
    """The pause after a fault, with so many before it that no success came between."""
    return float(min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(times_before, 10)))
