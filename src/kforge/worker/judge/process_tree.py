"""All that runs below a process, as the kernel tells it: who lives, what memory and processor time it uses."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass

from kforge.worker.judge.scheduler_waits import SchedulerTimes, waits_of
from kforge.worker.process_files import children, thread_states

_ROUNDS, _ROUND_SECONDS = 50, 0.002


@dataclass(frozen=True)
class ProcessTree:
    """Every process that a root has started, and those they have; the root is none of them."""

    root: int

    def living_processes(self) -> list[int]:
        """Every process of the tree that has a living thread."""
        processes: list[int] = []
        todo = children(self.root)
        while todo:
            pid = todo.pop()
            todo += children(pid)
            if _is_alive(pid):
                processes.append(pid)
        return processes

    def resident_bytes(self) -> int:
        """Resident memory of the tree that belongs to no file."""
        return sum(status_bytes(pid, "RssAnon") + status_bytes(pid, "RssShmem") for pid in self.living_processes())

    def cpu_ns(self) -> int:
        """Processor time that the tree has used so far."""
        return sum(map(cpu_ns_of, self.living_processes()))

    def scheduler_times(self) -> SchedulerTimes:
        """What the kernel has counted of the whole tree up to now."""
        living = self.living_processes()
        return SchedulerTimes(waits_of(living), sum(map(cpu_ns_of, living)))

    def kill(self) -> None:
        """End the whole tree: without a process namespace the end of the root alone ends nothing."""
        for _round in range(_ROUNDS):
            living = self.living_processes()
            for pid in living:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not living:
                break
            time.sleep(_ROUND_SECONDS)

    def stop(self) -> bool:
        """Stop the whole tree; whether all of it is seen at rest."""
        for _round in range(_ROUNDS):
            living = [pid for pid in self.living_processes() if not is_at_rest(pid)]
            for pid in living:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGSTOP)
            if not living:
                return True
            time.sleep(_ROUND_SECONDS)
        return False

    def go_on(self) -> None:
        """Let the whole tree go on."""
        for pid in self.living_processes():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)


def cpu_ns_of(pid: int) -> int:
    """Processor time that a process has used so far; 0 where it is gone."""
    with contextlib.suppress(OSError):
        # The kernel's number for the clock of a whole process.
        return time.clock_gettime_ns((~pid << 3) | 2)
    return 0


def _is_alive(pid: int) -> bool:
    """Whether a process has a living thread: the first one may have ended before the others."""
    return not {"Z", "X"}.issuperset(thread_states(pid).values())


def is_at_rest(pid: int) -> bool:
    """Whether every thread of a process is stopped, or has ended."""
    return {"T", "t", "Z", "X"}.issuperset(thread_states(pid).values())


def status_bytes(pid: int, name: str) -> int:
    """A size in the kernel's status of a process; 0 where it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) << 10
    return 0
