"""In a runner: nothing but calls, for something outside to count."""

from __future__ import annotations

import time
from typing import Any


def look(subject: Any, request: dict[str, Any]) -> dict[str, Any]:
    end = time.perf_counter() + float(request["seconds"])
    calls = 0
    while calls < 2 or time.perf_counter() < end:
        subject.call()
        calls += 1
    return {"calls": calls}
