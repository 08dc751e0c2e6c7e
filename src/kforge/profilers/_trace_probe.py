"""In a runner: a few calls under torch's profiler with CUPTI, as a Chrome trace.

Caches are cold before each call, as when it is timed. Only the events that the reader uses are kept.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from typing import Any

import torch

_CALL = "kforge_call"
_KEPT = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op", "user_annotation")
_FIELDS = ("ph", "cat", "pid", "tid", "ts", "dur")
_ARGUMENTS = ("correlation", "stream", "device", "grid", "block", "registers per thread", "shared memory", "bytes")
_MOST_EVENTS = 60_000
_LONGEST_NAME = 300
_LEAST_FLUSH = 64 << 20


def look(subject: Any, request: dict[str, Any]) -> dict[str, Any]:
    if not torch.cuda.is_available():
        return {"absent": "torch sees no GPU"}
    scratch = torch.empty(_flush_bytes(), dtype=torch.uint8, device="cuda")
    for _ in range(2):
        subject.call()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(int(request["calls"])):
            scratch.zero_()
            torch.cuda.synchronize()
            with torch.profiler.record_function(_CALL):
                subject.call()
                torch.cuda.synchronize()
    path = os.path.join(subject.home, "trace.json")
    profile.export_chrome_trace(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            events = [_cut(event) for event in json.load(file)["traceEvents"] if event.get("cat") in _KEPT]
    finally:
        os.unlink(path)
    data = json.dumps({"traceEvents": events[:_MOST_EVENTS]}, separators=(",", ":")).encode()
    return {
        "trace": base64.b64encode(gzip.compress(data, 6, mtime=0)).decode(),
        "left_out": max(0, len(events) - _MOST_EVENTS),
    }


def _flush_bytes() -> int:
    return max(2 * int(torch.cuda.get_device_properties(0).L2_cache_size), _LEAST_FLUSH)


def _cut(event: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = event.get("args") or {}
    kept: dict[str, Any] = {key: event[key] for key in _FIELDS if key in event}
    kept["name"] = str(event.get("name", ""))[:_LONGEST_NAME]
    kept["args"] = {key: arguments[key] for key in _ARGUMENTS if key in arguments}
    return kept
