"""What the kernel's files tell of a process: its children, its threads and their states.

They are read many times in every measurement, so without the layers that `open` puts around a file.
"""

from __future__ import annotations

import contextlib
import os

_AT_ONCE = 1 << 14


def content(path: str) -> bytes:
    """A whole file of the kernel's; OSError where the process is gone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _AT_ONCE):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def thread_folders(pid: int) -> dict[int, str]:
    """Thread -> its folder; none of a process that is gone."""
    folder = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        return {int(thread): f"{folder}/{thread}" for thread in os.listdir(folder)}
    return {}


def children(pid: int) -> list[int]:
    """Processes that a process started and that were not waited for yet."""
    pids: list[int] = []
    for folder in thread_folders(pid).values():
        with contextlib.suppress(OSError):
            pids += map(int, content(f"{folder}/children").split())
    return pids


def thread_states(pid: int) -> dict[int, str]:
    """Thread -> its state, in the kernel's letters (T stopped, R running, Z ended, and so on).

    Those of a process whose first thread has ended included; none of one that is gone.
    """
    states = {}
    for thread, folder in thread_folders(pid).items():
        with contextlib.suppress(OSError, IndexError):
            states[thread] = content(f"{folder}/stat").rpartition(b")")[2].split(maxsplit=1)[0].decode()
    return states


def scheduled_ns(folder: str) -> tuple[int, int] | None:
    """Nanoseconds that a thread, by its folder, ran so far and waited for a processor; None where nobody says."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        ran, waited = content(f"{folder}/schedstat").split()[:2]
        return int(ran), int(waited)
    return None
