"""Which processor each thread of a stopped process wakes up on.

Threads that are continued together are all put where the first one was, and share that processor until the kernel has
noticed. So each is given one of its own while it is stopped, and its freedom back as soon as it runs.
"""

from __future__ import annotations

import contextlib
import os


class Placement:
    """The threads of one process, spread over the processors."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[int, set[int]] = {}

    def spread(self) -> None:
        """One processor for each thread, where it may use them all; the first has one that no other gets."""
        if not self._pid or not hasattr(os, "sched_setaffinity"):
            return
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            return
        with contextlib.suppress(OSError):
            threads = sorted(map(int, os.listdir(f"/proc/{self._pid}/task")))
            for number, thread in enumerate(threads):
                with contextlib.suppress(OSError):
                    allowed = os.sched_getaffinity(thread)
                    if allowed == set(usable):
                        place = usable[1 + (number - 1) % (len(usable) - 1)] if number else usable[0]
                        os.sched_setaffinity(thread, {place})
                        self._before[thread] = allowed

    def restore(self) -> None:
        """Every processor for every thread again, as it was."""
        for thread, allowed in self._before.items():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, allowed)
        self._before = {}
