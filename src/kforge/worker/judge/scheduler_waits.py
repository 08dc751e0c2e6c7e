"""What other work on the machine takes from a process: time in which it could have run and did not.

Such time is the machine's, not the program's: nobody is refused for it, and no hang is seen in it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kforge.worker.judge.own_processors import processors_at_start, usable_processors
from kforge.worker.process_files import content, scheduled_ns, thread_folders

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
        left_by_it = usable_processors() * passed_ns - (later.cpu_ns - self.cpu_ns)
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


class CountedRunner(Protocol):
    """A runner of which the kernel tells something."""

    def scheduler_times(self) -> SchedulerTimes:
        """What it has counted of the runner and of everything it started."""

    def keeper_ns(self) -> int:
        """Processor time that its keeper has used so far."""


@dataclass(frozen=True)
class AnswerTimes:
    """What the kernel has counted of a runner and of the machine, up to a moment in which it works on an answer."""

    runner: SchedulerTimes
    machine: MachineTimes | None
    clock: float

    @classmethod
    def now(cls, runner: CountedRunner) -> AnswerTimes:
        """The times up to now."""
        machine = MachineTimes.now(processors_at_start() or None)
        return cls(runner.scheduler_times(), machine, time.monotonic())

    def lost_seconds(self, later: AnswerTimes) -> float:
        """The most that others, on this machine or beside it on the same hardware, can have taken in between."""
        passed_ns = int((later.clock - self.clock) * 1e9)
        lost = self.runner.lost_ns(later.runner, passed_ns) or 0
        if self.machine is not None and later.machine is not None:
            lost += self.machine.lost_ns(later.machine, passed_ns)
        return min(lost, passed_ns) / 1e9


@dataclass(frozen=True)
class TurnTimes:
    """What the kernel has counted of a runner, of its keeper and of the judge, up to a moment in which it is not its
    turn."""

    runner: SchedulerTimes
    judge_wait_ns: int
    judge_cpu_ns: int
    """The keeper's time included."""
    clock_ns: int

    @classmethod
    def now(cls, runner: CountedRunner) -> TurnTimes:
        """The times up to now."""
        times, waited = runner.scheduler_times(), own_wait_ns()
        return cls(times, waited, runner.keeper_ns() + time.process_time_ns(), time.perf_counter_ns())

    def lost_ns(self, later: TurnTimes, wall_ns: int) -> int:
        """The most that others can have added to a block of so long in the time between."""
        lost = self.runner.lost_ns(later.runner, wall_ns)
        return wall_ns if lost is None else min(wall_ns, lost + later.judge_wait_ns - self.judge_wait_ns)

    def taken_ns(self, later: TurnTimes, wall_ns: int) -> int:
        """The same without what the judge and the runner took from each other: no more than they left to others."""
        own = self.used_ns(later) + later.judge_cpu_ns - self.judge_cpu_ns
        left_by_them = usable_processors() * (later.clock_ns - self.clock_ns) - own
        return max(0, min(self.lost_ns(later, wall_ns), left_by_them))

    def used_ns(self, later: TurnTimes) -> int:
        """Processor time that the runner and everything it started used in the time between."""
        return later.runner.cpu_ns - self.runner.cpu_ns


@dataclass(frozen=True)
class MachineTimes:
    """What processors together were used for up to one moment; told in steps of some milliseconds."""

    busy_ns: int
    stolen_ns: int
    """What other machines on the same hardware took."""

    @classmethod
    def now(cls, processors: frozenset[int] | None = None) -> MachineTimes | None:
        """The times up to now, of some processors or of all; None where the kernel does not say."""
        with contextlib.suppress(OSError):
            return cls.read(content("/proc/stat"), processors)
        return None

    def lost_ns(self, later: MachineTimes, passed_ns: int) -> int:
        """What other machines took from one program in the time between.

        Where several processors were wanted at once, that is what was taken of each of them on average: more threads do
        not make it more.
        """
        stolen = max(0, later.stolen_ns - self.stolen_ns)
        wanted = max(passed_ns, stolen + later.busy_ns - self.busy_ns, 1)
        return stolen * passed_ns // wanted

    @classmethod
    def read(cls, text: bytes, processors: frozenset[int] | None = None) -> MachineTimes | None:
        """The times that the kernel's text tells; None where it does not, be it of one processor only."""
        names = {b"cpu"} if processors is None else {b"cpu%d" % number for number in processors}
        busy = stolen = found = 0
        with contextlib.suppress(ValueError):
            for name, *counts in filter(None, map(bytes.split, text.splitlines())):
                if name in names:
                    user, nice, system, _idle, _waiting, interrupts, soft, taken = map(int, counts[:8])
                    busy, stolen, found = busy + user + nice + system + interrupts + soft, stolen + taken, found + 1
            tick = 1_000_000_000 // _TICKS
            return cls(busy * tick, stolen * tick) if found == len(names) else None
        return None
