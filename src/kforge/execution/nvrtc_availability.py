"""Whether programs for CUDA can be compiled on this machine, which needs no GPU. Nothing of torch is imported."""

from __future__ import annotations

import importlib.util
import sys

from kforge.platforms._nvidia.run_time_compiler import nvrtc_version
from kforge.worker.sandbox import levels

_CURE = "pip install 'kforge-kernels[torch,nvrtc]'"


def unavailable_reason() -> str:
    """Why programs cannot be compiled here, with the cure; empty if they can."""
    if sys.platform != "linux":
        return "needs a sandbox of Linux's"
    for name in ("torch", "cuda.core", "cuda.bindings"):
        if not _is_installed(name):
            return f"{name} is not installed ({_CURE})"
    if not nvrtc_version():
        return f"NVRTC cannot be loaded ({_CURE})"
    if levels.choose("auto") == "process":
        return "no level of the sandbox here hides this machine's files from programs"
    return ""


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
