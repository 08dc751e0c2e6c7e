"""In a runner: the commands of a few calls, as OpenCL's own events time them.

Queues that the program makes are made with profiling on, and what it enqueues through pyopencl is noted on the way.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

_noted: list[tuple[str, Any]] = []
_MOST, _LONGEST, _WARM, _PROFILING = 2000, 100, 2, 1 << 1
"""Commands of a call, characters of a name, calls before the first, and OpenCL's CL_QUEUE_PROFILING_ENABLE."""


def prepare(home: str, request: dict[str, Any]) -> dict[str, Any]:
    cl: Any = importlib.import_module("pyopencl")
    native: Any = cl._cl

    class Profiled(native.CommandQueue):  # type: ignore[misc]
        def __init__(self, context: Any, device: Any = None, properties: Any = 0) -> None:
            super().__init__(context, device, properties | _PROFILING if isinstance(properties, int) else properties)

    cl.CommandQueue = Profiled
    for name in [name for name in dir(native) if name.lstrip("_").startswith("enqueue_")]:
        plain, noting = getattr(native, name), _note_events(name.lstrip("_"), getattr(native, name))
        for place in (native, cl):
            if getattr(place, name, None) is plain:
                setattr(place, name, noting)
    return {}


def _note_events(name: str, plain: Any) -> Any:
    def enqueue(*arguments: Any, **named: Any) -> Any:
        result = plain(*arguments, **named)
        event = result[-1] if isinstance(result, tuple) else result
        if hasattr(event, "profile") and len(_noted) < _MOST:
            _noted.append((f"kernel {arguments[1].function_name}" if "nd_range" in name else name, event))
        return result

    return enqueue


def look(subject: Any, request: dict[str, Any]) -> dict[str, Any]:
    calls = []
    for _ in range(_WARM + int(request["calls"])):
        _noted.clear()
        began = time.perf_counter_ns()
        subject.call()
        calls.append([time.perf_counter_ns() - began, [[name[:_LONGEST], *_times(event)] for name, event in _noted]])
    return {"calls": calls[_WARM:]}


def _times(event: Any) -> list[int]:
    event.wait()
    return [getattr(event.profile, moment) for moment in ("queued", "submit", "start", "end")]
