"""In a runner: how long calls take, how much of that is the program's own native code, and which operators torch ran.

A call through ctypes is timed by a subclass of ctypes' own function type, put in place before the program is imported;
functions of extension modules are timed through the interpreter's profile hook.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from sysconfig import get_path
from typing import Any

_clock = time.perf_counter_ns
_native = [0]
"""Nanoseconds in foreign functions."""
_ROWS = 12
_ALLOCATING = ("aten::empty", "aten::new_empty")
_PLAIN = ctypes._CFuncPtr  # type: ignore[attr-defined]


class _Timed(_PLAIN):  # type: ignore[misc, valid-type]
    _flags_ = ctypes._FUNCFLAG_CDECL  # type: ignore[attr-defined]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        began = _clock()
        try:
            return _PLAIN.__call__(self, *arguments, **named)
        finally:
            _native[0] += _clock() - began


def prepare(home: str, request: dict[str, Any]) -> dict[str, Any]:
    ctypes._CFuncPtr = _Timed  # type: ignore[attr-defined]
    return {}


def look(subject: Any, request: dict[str, Any]) -> dict[str, Any]:
    seconds = float(request["seconds"])
    began = _clock()
    subject.call()
    first = _clock() - began
    count = max(2, min(60, int(seconds * 1e9 / max(first, 1))))
    for _ in range(min(3, count)):
        subject.call()
    walls, shares = [], []
    for _ in range(count):
        _native[0] = 0
        began = _clock()
        subject.call()
        walls.append(_clock() - began)
        shares.append(_native[0] / max(walls[-1], 1))
    wall = sorted(walls)[count // 2]
    return {
        "calls": count,
        "wall_ns": wall,
        "native_share": sorted(shares)[count // 2] + _extension_share(subject, min(count, 5)),
        **_operators(subject, max(2, min(count // 2, 20))),
    }


def _extension_share(subject: Any, count: int) -> float:
    """Of a call's time, in functions of extension modules that the program built.

    Both times are of the same call: beside other work on the machine, one call may take twice as long as the next.
    """
    files = {id(module): str(getattr(module, "__file__", "")) for module in list(sys.modules.values())}
    installed = tuple({path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := get_path(name))})
    built = {
        key
        for key, file in files.items()
        if file.endswith((".so", ".pyd", ".dylib")) and not os.path.realpath(file).startswith(installed)
    }
    spent = began = 0

    def hook(_frame: Any, event: str, function: Any) -> None:
        nonlocal spent, began
        if event == "c_call" and id(getattr(function, "__self__", None)) in built:
            began = _clock()
        elif event in ("c_return", "c_exception") and began and id(getattr(function, "__self__", None)) in built:
            spent += _clock() - began
            began = 0

    shares = []
    for _ in range(count if built else 0):
        spent = 0
        called = _clock()
        sys.setprofile(hook)
        try:
            subject.call()
        finally:
            sys.setprofile(None)
        shares.append(spent / max(_clock() - called, 1))
    return sorted(shares)[len(shares) // 2] if shares else 0.0


def _operators(subject: Any, count: int) -> dict[str, Any]:
    import torch

    with torch.autograd.profiler.profile(use_kineto=True, record_shapes=True, profile_memory=True) as profile:
        _native[0] = 0
        began = _clock()
        for _ in range(count):
            subject.call()
        wall, foreign = (_clock() - began) / count, _native[0] / count
    rows: dict[tuple[str, str], list[float]] = {}
    library = custom = calls = allocated = 0.0
    for event in profile.function_events:
        allocated += max(0, event.self_cpu_memory_usage)
        space = event.name.partition("::")[0] if "::" in event.name else ""
        if not space:
            continue
        row = rows.setdefault((event.name, str(event.input_shapes or "")), [0.0, 0.0])
        row[0] += 1
        row[1] += event.self_cpu_time_total * 1000
        if event.cpu_parent is None or "::" not in event.cpu_parent.name:
            calls += 1
            if event.name.startswith(_ALLOCATING):
                continue
            if space == "aten":
                library += event.cpu_time_total * 1000
            else:
                custom += event.cpu_time_total * 1000
    ordered = sorted(rows.items(), key=lambda item: -item[1][1])[:_ROWS]
    return {
        "profiled_ns": wall,
        "profiled_native_ns": foreign,
        "library_ns": library / count,
        "operator_ns": custom / count,
        "operator_calls": calls / count,
        "allocated_bytes": allocated / count,
        "operators": [[name, shapes, times / count, spent / count] for (name, shapes), (times, spent) in ordered],
    }
