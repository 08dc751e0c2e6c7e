"""A package at work in a process of its own, as at its user's: outside the sandbox, but without our environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_KEPT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CXX", "OMP_NUM_THREADS"),
    *("XDG_CACHE_HOME", "KFORGE_PACKAGE_CACHE", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "TRITON_CACHE_DIR", "HF_HOME"),
)
"""What a package may need of our environment. Keys are not among it."""


def run_package(
    words: list[str], root: Path, seconds: float, more: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Python with these words, where the package in a folder can be imported. Raises subprocess.TimeoutExpired."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment = {**kept, "PYTHONPATH": str(root), **(more or {})}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
