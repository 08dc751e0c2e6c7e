"""Which processor each thread of a stopped process wakes up on.

Threads that are continued together are put where the first one was, and some kernels leave them there: two that work
side by side then share one processor while another is idle, in one block and not in the next. So those that work get
one each while they are stopped, and keep it for the block; the first thread is free again at once, and with it every
thread that it makes.
"""

from __future__ import annotations

import contextlib
import os

from kforge.worker.process_files import scheduled_ns, thread_folders

_WORKS = 0.05
"""A thread that used less than this part of what the busiest one used is left where it is."""


class Placement:
    """The threads of one process, spread over the processors."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[int, set[int]] = {}
        self._used: dict[int, int] = {}
        self.working: int | None = None
        """How many threads worked when this last looked; None where nobody can tell."""

    def spread(self) -> None:
        """Give each thread that worked since this was last called a processor, the busiest first."""
        if not self._pid or not hasattr(os, "sched_setaffinity"):
            return
        self._give_back(list(self._before))
        usable = sorted(os.sched_getaffinity(0))
        used = self._used_ns()
        spent = {thread: now - self._used.get(thread, 0) for thread, now in used.items()}
        self._used = used
        working = [thread for thread in spent if spent[thread] > _WORKS * max(spent.values())]
        self.working = len(working) or self.working
        if len(usable) < 2 or len(working) < 2:
            return
        for number, thread in enumerate(sorted(working, key=spent.__getitem__, reverse=True)):
            with contextlib.suppress(OSError):
                allowed = os.sched_getaffinity(thread)
                if allowed == set(usable):
                    os.sched_setaffinity(thread, {usable[number % len(usable)]})
                    self._before[thread] = allowed

    def restore(self) -> None:
        """Let the first thread use every processor again."""
        self._give_back([self._pid])

    def _give_back(self, threads: list[int]) -> None:
        for thread in threads:
            allowed = self._before.pop(thread, None)
            if allowed is not None:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(thread, allowed)

    def _used_ns(self) -> dict[int, int]:
        """Thread -> processor time it used so far."""
        times = {thread: scheduled_ns(folder) for thread, folder in thread_folders(self._pid).items()}
        return {thread: ran_and_waited[0] for thread, ran_and_waited in times.items() if ran_and_waited is not None}
