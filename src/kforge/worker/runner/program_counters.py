"""Where the threads of stopped processes are: the file that each one's next instruction comes from."""

from __future__ import annotations

import bisect
import contextlib
import os
from collections import Counter
from collections.abc import Iterable

WAITING = "[waiting]"
"""In place of a file: inside a system call."""


def files_at(processes: Iterable[int]) -> Counter[str]:
    """Mapped file -> how many threads are in it; an empty name for memory that belongs to no file."""
    counts: Counter[str] = Counter()
    for pid in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            starts, ends, names = _mappings(pid)
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    counts[_file_at(pid, thread, starts, ends, names)] += 1
    return counts


def _file_at(pid: int, thread: str, starts: list[int], ends: list[int], names: list[str]) -> str:
    with open(f"/proc/{pid}/task/{thread}/syscall") as file:
        words = file.read().split()
    if int(words[0]) >= 0:
        return WAITING
    place = bisect.bisect_right(starts, counter := int(words[-1], 16)) - 1
    return names[place] if place >= 0 and counter < ends[place] else ""


def _mappings(pid: int) -> tuple[list[int], list[int], list[str]]:
    starts: list[int] = []
    ends: list[int] = []
    names: list[str] = []
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            words = line.split(maxsplit=5)
            if "x" in words[1]:
                start, end = (int(part, 16) for part in words[0].split("-"))
                starts.append(start)
                ends.append(end)
                names.append(words[5].strip() if len(words) == 6 else "")
    return starts, ends, names
