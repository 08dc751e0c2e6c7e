"""Conditions that come about while a test waits for them: by looking, since a pause is too short on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 90.0
"""On a machine with much else to do."""


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Return as soon as it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.005)
