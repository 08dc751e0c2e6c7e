"""Where the threads of stopped processes are: the file that each one's next instruction comes from, and where in it."""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from kforge.worker.protocol.keeper import ThreadPlace

WAITING = "[waiting]"
"""In place of a file: inside a system call."""


class _Mapping(NamedTuple):
    start: int
    end: int
    offset: int
    """Of its first byte in the file."""
    name: str


def thread_places(processes: Iterable[int]) -> list[ThreadPlace]:
    """Where each thread is."""
    places: list[ThreadPlace] = []
    for pid in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            mappings = _mappings(pid)
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    places.append(_place_of(pid, thread, mappings))
    return places


def _place_of(pid: int, thread: str, mappings: list[_Mapping]) -> ThreadPlace:
    with open(f"/proc/{pid}/task/{thread}/syscall") as file:
        words = file.read().split()
    if int(words[0]) >= 0:
        return ThreadPlace(WAITING, 0)
    counter = int(words[-1], 16)
    index = bisect.bisect_right(mappings, counter, key=lambda mapping: mapping.start) - 1
    if index < 0 or counter >= mappings[index].end:
        return ThreadPlace("", 0)
    mapping = mappings[index]
    return ThreadPlace(mapping.name, counter - mapping.start + mapping.offset)


def _mappings(pid: int) -> list[_Mapping]:
    """What of a process's memory can be executed, in order."""
    mappings: list[_Mapping] = []
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            words = line.split(maxsplit=5)
            if "x" in words[1]:
                start, end = (int(part, 16) for part in words[0].split("-"))
                mappings.append(_Mapping(start, end, int(words[2], 16), words[5].strip() if len(words) == 6 else ""))
    return mappings
