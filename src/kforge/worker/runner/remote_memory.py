"""The memory of a stopped process, read by its parent: nothing of the process takes part in it.

Only memory of its own counts as a result: private and anonymous. What is shared with others, or backed by a file, may
be one page seen many times, or be filled by whoever is asked for it.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import sys
from collections.abc import Sequence

from kforge.worker.arena import Arena
from kforge.worker.process_files import content

_AT_ONCE = 512
Piece = tuple[int, int, int]
"""Address, bytes, and where they go in the target."""


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class RemoteMemory:
    """Copies pieces of one process's memory into memory of the judge's."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._reader = getattr(self._libc, "process_vm_readv", None) if sys.platform == "linux" else None

    def copy(self, pieces: Sequence[Piece], arena: Arena, own: bool) -> str:
        """Copy (address, bytes, offset in the arena) pieces; says why not, or nothing.

        `own`: refuse what does not lie in private memory that belongs to no file.
        """
        if self._reader is None:
            return "no process can be read from outside on this system"
        if own and not self._covers(pieces):
            return "not_own"
        for start in range(0, len(pieces), _AT_ONCE):
            part = pieces[start : start + _AT_ONCE]
            here = (_Span * len(part))(*(_Span(arena.address + offset, length) for _, length, offset in part))
            there = (_Span * len(part))(*(_Span(address, length) for address, length, _ in part))
            wanted = sum(length for _, length, _ in part)
            done = self._read(here, there, wanted)
            if done:
                return done
        return ""

    def can_be_read(self) -> bool:
        """Whether this process may read the other at all."""
        try:
            starts, _ = self._own_regions()
            byte = ctypes.create_string_buffer(1)
            here, there = (_Span * 1)(_Span(ctypes.addressof(byte), 1)), (_Span * 1)(_Span(starts[0], 1))
            return self._reader is not None and not self._read(here, there, 1)
        except (OSError, IndexError):
            return False

    def _read(self, here: ctypes.Array[_Span], there: ctypes.Array[_Span], wanted: int) -> str:
        assert self._reader is not None
        self._reader.restype = ctypes.c_ssize_t
        count = ctypes.c_ulong(len(here))
        got = self._reader(ctypes.c_int(self._pid), here, count, there, count, ctypes.c_ulong(0))
        if got == wanted:
            return ""
        return os.strerror(ctypes.get_errno()) if got < 0 else f"only {got} of {wanted} bytes can be read"

    def _covers(self, pieces: Sequence[Piece]) -> bool:
        """Whether every piece lies in private, anonymous memory."""
        starts, ends = self._own_regions()
        for address, length, _ in pieces:
            place = bisect.bisect_right(starts, address) - 1
            if place < 0 or address + length > ends[place]:
                return False
        return True

    def _own_regions(self) -> tuple[list[int], list[int]]:
        """Starts and ends of such regions, those that touch each other joined."""
        starts: list[int] = []
        ends: list[int] = []
        for line in content(f"/proc/{self._pid}/maps").splitlines():
            where, rights, _offset, _device, inode = line.split(maxsplit=5)[:5]
            if inode != b"0" or not rights.startswith(b"r") or not rights.endswith(b"p"):
                continue
            start, end = (int(part, 16) for part in where.split(b"-"))
            if ends and ends[-1] == start:
                ends[-1] = end
            else:
                starts.append(start)
                ends.append(end)
        return starts, ends
