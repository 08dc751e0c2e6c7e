"""What other work on the machine takes from a process: time in which it could have run and did not.

Such time is the machine's, not the program's: nobody is refused for it, and no hang is seen in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from kforge.worker.process_files import scheduled_ns, thread_folders

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class SchedulerTimes:
    """What the kernel has counted of a runner and everything it started, up to one moment."""

    waits: dict[int, int] | None
    """Thread -> nanoseconds it waited for a processor; None where the kernel does not say."""
    cpu_ns: int

    def lost_ns(self, later: SchedulerTimes, passed_ns: int) -> int | None:
        """The most that others can have taken in the time between; None where nothing is known.

        While it waited, somebody else had the processor; but who keeps all processors busy himself waits for himself.
        """
        if self.waits is None or later.waits is None:
            return None
        waited = sum(max(0, now - self.waits.get(thread, 0)) for thread, now in later.waits.items())
        left_by_it = (os.cpu_count() or 1) * passed_ns - (later.cpu_ns - self.cpu_ns)
        return max(0, min(waited, left_by_it, passed_ns))


def waits_of(processes: Iterable[int]) -> dict[int, int] | None:
    """Thread -> nanoseconds it waited for a processor so far; None where the kernel does not say."""
    waits: dict[int, int] = {}
    for process in processes:
        for thread, folder in thread_folders(process).items():
            times = scheduled_ns(folder)
            if times is not None:
                waits[thread] = times[1]
    return waits or None


def own_wait_ns() -> int:
    """Nanoseconds that this thread waited for a processor so far; 0 where the kernel does not say."""
    times = scheduled_ns("/proc/thread-self")
    return times[1] if times is not None else 0


@dataclass(frozen=True)
class MachineTimes:
    """What all processors together were used for up to one moment; told in steps of some milliseconds."""

    busy_ns: int
    stolen_ns: int
    """What other machines on the same hardware took."""

    @classmethod
    def now(cls) -> MachineTimes | None:
        """The times up to now; None where the kernel does not say."""
        with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/stat") as file:
            user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, file.readline().split()[1:9])
            tick = 1_000_000_000 // _TICKS
            return cls((user + nice + system + interrupts + soft) * tick, stolen * tick)
        return None
