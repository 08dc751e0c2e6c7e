"""Which of the machine's processors a judge has for itself, if it has some of them only.

A judge that may run on some processors only, as under `taskset`, is disturbed by who works on these, and not by a judge
beside it on others. That holds for whole cores: who is on the other half of a core takes from this one. What may run
where was decided before the first program was built, and is not asked again but to see that nobody has changed it.
"""

from __future__ import annotations

import contextlib
import functools
import os

from kforge.worker.process_files import content

_STAT = "/proc/stat"


@functools.cache
def processors_at_start() -> frozenset[int]:
    """What this process might run on when its first judge was made; empty where the kernel does not say."""
    return _allowed_now()


def usable_processors() -> int:
    """How many processors this process may use."""
    return len(_allowed_now()) or os.cpu_count() or 1


def own_processors() -> frozenset[int] | None:
    """The processors on which others' work counts; None where that is the whole machine.

    It is the whole machine where this process may use all of it, where a core is only half its own, where the kernel
    does not tell these, and where what it may use is no longer what it was at the start.
    """
    mine = processors_at_start()
    if not mine or mine != _allowed_now() or not mine < _processors_told():
        return None
    halves = [siblings_of(processor) for processor in mine]
    return mine if all(half and half <= mine for half in halves) else None


def read_processor_list(text: str) -> frozenset[int]:
    """The kernel's way to write several processors, such as 0-3,8; ValueError where it is none."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


@functools.cache
def siblings_of(processor: int) -> frozenset[int]:
    """The processors of the core that one is part of, itself included; empty where the kernel does not say."""
    with contextlib.suppress(OSError, ValueError):
        path = f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
        return read_processor_list(content(path).decode())
    return frozenset()


def _allowed_now() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def _processors_told() -> frozenset[int]:
    """The processors whose times the kernel tells one by one: those that work; none where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        names = [line.split(maxsplit=1)[0] for line in content(_STAT).splitlines() if line.startswith(b"cpu")]
        return frozenset(int(name[3:]) for name in names if name != b"cpu")
    return frozenset()
