"""In a runner: a few calls under torch's profiler, as a Chrome trace, with the program's own native functions in it.

torch's profiler sees operators and what runs on a GPU. Functions that a program calls through ctypes, and those of
extension modules that it built, are named in the trace by ranges of our own.
"""

from __future__ import annotations

import base64
import ctypes
import gzip
import json
import os
import sys
from sysconfig import get_path
from typing import Any

import torch

_CALL = "kforge_call"
_NATIVE = "native: "
_FIELDS = ("ph", "cat", "pid", "tid", "ts", "dur")
_ARGUMENTS = ("correlation", "stream", "device", "grid", "block", "registers per thread", "shared memory", "bytes")
_LEFT_OUT = ("ac2g", "fwdbwd", "cpu_instant_event", "overhead", "Trace")
_MOST_EVENTS = 60_000
_LONGEST_NAME = 300
_LEAST_FLUSH = 64 << 20
_PLAIN = ctypes._CFuncPtr  # type: ignore[attr-defined]
_watching = [False]


def _range(name: str) -> Any:
    fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    return fast(_NATIVE + name) if fast is not None else torch.profiler.record_function(_NATIVE + name)


class _Named(_PLAIN):  # type: ignore[misc, valid-type]
    _flags_ = ctypes._FUNCFLAG_CDECL  # type: ignore[attr-defined]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if not _watching[0]:
            return _PLAIN.__call__(self, *arguments, **named)
        with _range(str(getattr(self, "__name__", "a foreign function"))):
            return _PLAIN.__call__(self, *arguments, **named)


def prepare(home: str, request: dict[str, Any]) -> dict[str, Any]:
    ctypes._CFuncPtr = _Named  # type: ignore[attr-defined]
    return {}


def look(subject: Any, request: dict[str, Any]) -> dict[str, Any]:
    device = str(request["device"])
    on_gpu = device == "cuda" and torch.cuda.is_available()
    scratch = torch.empty(_flush_bytes(), dtype=torch.uint8, device="cuda") if on_gpu else None
    for _ in range(2):
        subject.call()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    hook = _extensions()
    with torch.profiler.profile(activities=activities) as profile:
        # The first call under the profiler is slow; it is outside every annotation and so not shown.
        subject.call()
        for _ in range(int(request["calls"])):
            if scratch is not None:
                scratch.zero_()
            _synchronize(device)
            with torch.profiler.record_function(_CALL):
                _watching[0] = True
                if hook is not None:
                    sys.setprofile(hook)
                try:
                    subject.call()
                finally:
                    sys.setprofile(None)
                    _watching[0] = False
                _synchronize(device)
    return _pack(profile, os.path.join(subject.home, "view.json"))


def _synchronize(device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        torch.cuda.synchronize()
    elif device == "mps" and torch.backends.mps.is_available():
        torch.mps.synchronize()


def _flush_bytes() -> int:
    return max(2 * int(torch.cuda.get_device_properties(0).L2_cache_size), _LEAST_FLUSH)


def _extensions() -> Any:
    """A profile hook that names functions of extension modules that the program built; None if it built none."""
    installed = tuple({path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := get_path(name))})
    built = [
        module
        for module in list(sys.modules.values())
        if str(getattr(module, "__file__", "") or "").endswith((".so", ".pyd", ".dylib"))
        and not os.path.realpath(str(module.__file__)).startswith(installed)
    ]
    if not built:
        return None
    ids, names = {id(module) for module in built}, {module.__name__ for module in built}
    open_ranges: list[Any] = []

    def hook(_frame: Any, event: str, function: Any) -> None:
        if event not in ("c_call", "c_return", "c_exception"):
            return
        if id(getattr(function, "__self__", None)) not in ids and getattr(function, "__module__", None) not in names:
            return
        if event == "c_call":
            open_ranges.append(_range(str(getattr(function, "__name__", "an extension's function"))))
            open_ranges[-1].__enter__()
        elif open_ranges:
            open_ranges.pop().__exit__(None, None, None)

    return hook


def _pack(profile: Any, path: str) -> dict[str, Any]:
    profile.export_chrome_trace(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            events = [_cut(event) for event in json.load(file)["traceEvents"] if _is_wanted(event)]
    finally:
        os.unlink(path)
    data = json.dumps({"traceEvents": events[:_MOST_EVENTS]}, separators=(",", ":")).encode()
    return {
        "trace": base64.b64encode(gzip.compress(data, 6, mtime=0)).decode(),
        "left_out": max(0, len(events) - _MOST_EVENTS),
    }


def _is_wanted(event: dict[str, Any]) -> bool:
    return event.get("ph") == "X" and event.get("cat") not in _LEFT_OUT


def _cut(event: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = event.get("args") or {}
    kept: dict[str, Any] = {key: event[key] for key in _FIELDS if key in event}
    kept["name"] = str(event.get("name", ""))[:_LONGEST_NAME]
    kept["args"] = {key: arguments[key] for key in _ARGUMENTS if key in arguments}
    return kept
