"""Which processor each thread of a stopped process wakes up on.

Threads that are continued together are put where the first one was, and some kernels leave them there: two that work
side by side then share one processor while another is idle, in one block and not in the next. So those that work get
one each while they are stopped, and keep it for the block.

What a thread makes inherits its processor. So the first thread is free again at once in a program that makes threads in
its calls, or has more of them than there are processors.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable

from kforge.worker.judge.own_processors import siblings_of
from kforge.worker.judge.process_tree import cpu_ns_of
from kforge.worker.process_files import scheduled_ns, thread_folders

_WORKS = 0.05
"""A thread that used less than this part of what the busiest one used is left where it is."""


class Placement:
    """The threads of one process, spread over the processors."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[int, set[int]] = {}
        self._used: dict[int, int] = {}
        self._used_by_all = 0
        self._busiest_first: list[int] = []
        self._is_spread = False
        self._makes_threads = False
        self._too_many = False

    @property
    def working(self) -> int | None:
        """How many threads worked in the last turn; None where nobody can tell."""
        return len(self._busiest_first) or None

    def note_work(self) -> None:
        """See which threads worked since this was last called. They are stopped, and may be anywhere again."""
        if not self._pid or not hasattr(os, "sched_setaffinity"):
            return
        self._give_back(list(self._before))
        used, by_all = self._used_ns(), cpu_ns_of(self._pid)
        spent = {thread: now - self._used.get(thread, 0) for thread, now in used.items()}
        most = max(spent.values(), default=0)
        if self._is_spread:
            by_known = sum(ns for thread, ns in spent.items() if thread in self._used)
            # The kernel counts those that have ended since for the process, and lists them no more.
            self._makes_threads |= by_all - self._used_by_all - by_known > _WORKS * most
        working = [thread for thread in spent if spent[thread] > _WORKS * most]
        # Between two turns it may be asked something, which takes one thread and says nothing of the next turn.
        if working and (self._is_spread or len(working) > len(self._busiest_first)):
            self._busiest_first = sorted(working, key=spent.__getitem__, reverse=True)
        self._used, self._used_by_all, self._is_spread = used, by_all, False

    def spread(self) -> None:
        """Give each thread that worked in the last turn a processor, the busiest first; right before the next one."""
        threads = self._busiest_first
        self._is_spread = True
        if len(threads) < 2:
            return
        usable = in_order_of_use(os.sched_getaffinity(0), _core_of, _own_processor())
        if len(usable) < 2:
            return
        self._too_many = len(threads) > len(usable)
        for number, thread in enumerate(threads):
            with contextlib.suppress(OSError):
                allowed = os.sched_getaffinity(thread)
                if allowed == set(usable):
                    os.sched_setaffinity(thread, {usable[number % len(usable)]})
                    self._before[thread] = allowed

    def restore(self) -> None:
        """Let the first thread use every processor again, where others inherit what it may use."""
        if self._makes_threads or self._too_many:
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


def in_order_of_use(processors: Iterable[int], core_of: Callable[[int], int], own: int | None) -> list[int]:
    """Processors in the order in which threads get them: one of each core, then the next of each.

    Among those comes last what this thread is on until it has nothing to do but wait.
    """
    cores: dict[int, int] = {}
    ranks = {}
    for processor in sorted(processors):
        core = core_of(processor)
        ranks[processor] = cores[core] = cores.get(core, 0) + 1
    return sorted(ranks, key=lambda processor: (ranks[processor], processor == own, processor))


def _core_of(processor: int) -> int:
    """The first processor of the core that one is part of; itself where nobody says."""
    return min(siblings_of(processor), default=processor)


def _own_processor() -> int | None:
    """The processor that this thread is on; None where nobody says."""
    library = ctypes.CDLL(None)
    return int(library.sched_getcpu()) if hasattr(library, "sched_getcpu") else None
