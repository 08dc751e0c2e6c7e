"""NVRTC, as programs have it by way of NVIDIA's own Python packages. It needs neither GPU nor driver."""

from __future__ import annotations

import functools


@functools.cache
def nvrtc_version() -> str:
    """Its version, "13.4"; empty where it cannot be loaded."""
    try:
        from cuda.bindings import nvrtc

        status, major, minor = nvrtc.nvrtcVersion()
    except Exception:
        # Whatever its packages raise where one of them, or the library itself, is not installed.
        return ""
    return f"{major}.{minor}" if int(status) == 0 else ""
