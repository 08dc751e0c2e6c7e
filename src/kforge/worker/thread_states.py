"""The states of a process's threads, in the kernel's letters: T stopped, R running, Z ended, and so on."""

from __future__ import annotations

import contextlib
import os


def thread_states(pid: int) -> dict[int, str]:
    """Thread -> its state, those of a process whose first thread has ended included; none of one that is gone."""
    found = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                found[int(thread)] = file.read().rpartition(b")")[2].split()[0].decode()
    return found
