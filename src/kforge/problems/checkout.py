"""Which commit files are from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

_CAREFUL = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Options that keep git from running what a checkout's own settings name."""


def commits_of(folders: Iterable[Path]) -> str:
    """The commits of the checkouts that the folders are in, each once, with a + where files were changed; empty
    without one.
    """
    return ", ".join(dict.fromkeys(filter(None, map(_commit, dict.fromkeys(folders)))))


def _commit(folder: Path) -> str:
    if not _git(folder, "ls-files", "--", "."):
        return ""
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    return f"{commit}+" if commit and _git(folder, "status", "--porcelain", "--", ".") else commit


def _git(folder: Path, *arguments: str) -> str:
    """What git says; nothing where there is no git, or no checkout."""
    # A hook of another checkout would have git look there.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *_CAREFUL, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
