"""The turn to judge on this machine's processors, among all worker processes on it.

A device with memory of its own has the judge's lease for this. Processes whose cores overlap would time each other,
and those that were given cores of their own (`taskset -c 0 kforge worker ...`) need not wait for one another: each core
has a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

_LOOK_AGAIN = 0.01
_SAY_SO = 1.0


def own_cores() -> tuple[int, ...]:
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


class ProcessorTurn:
    """The locks of some cores, taken in order, so that two processes never wait for each other."""

    def __init__(self, cores: tuple[int, ...] = (), folder: Path | None = None) -> None:
        self._cores = cores or own_cores()
        self._folder = folder or Path(tempfile.gettempdir())

    @contextlib.asynccontextmanager
    async def hold(self, tell: Callable[[str], None]) -> AsyncIterator[None]:
        """Wait for the cores, then keep them for the block."""
        held: list[int] = []
        try:
            for core in self._cores:
                await self._take(core, held, tell)
            yield
        finally:
            for descriptor in held:
                os.close(descriptor)

    async def _take(self, core: int, held: list[int], tell: Callable[[str], None]) -> None:
        try:
            descriptor = _open_shared(self._folder / f"kforge-lease-core-{core}")
        except OSError:
            # No file can be made there: only this process is in order then.
            return
        held.append(descriptor)
        waited = 0.0
        while not _is_locked(descriptor):
            if waited <= _SAY_SO < waited + _LOOK_AGAIN:
                tell("waiting for the processors: another KForge worker judges on them")
            waited += _LOOK_AGAIN
            await asyncio.sleep(_LOOK_AGAIN)


def _open_shared(path: Path) -> int:
    """The file, made for every user of this machine if need be."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o666)
        return descriptor


def _is_locked(descriptor: int) -> bool:
    """Try to lock; a file system without locks cannot, and keeps nobody waiting."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
