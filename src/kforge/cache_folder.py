"""Where KForge keeps what can be made again: ceilings, compiled baselines, programs in use."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/kforge`, or `~/.cache/kforge`; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kforge"
