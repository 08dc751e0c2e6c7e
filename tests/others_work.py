"""What others do on this machine while a test measures, for tests that only a quiet machine can pass."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kforge.worker.judge.process_tree import ProcessTree
from kforge.worker.judge.scheduler_waits import MachineTimes
from kforge.worker.process_files import content

_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_USED, _MOST_STOLEN = 0.05, 0.005


@dataclass
class OthersWork:
    """How many processors others had meanwhile, on average: on this machine, and beside it on the same hardware."""

    used: float = 0.0
    stolen: float = 0.0

    def skip_if_any(self) -> None:
        """Skip the test if that is more than a quiet machine has."""
        if self.used > _MOST_USED:
            pytest.skip(f"others used {self.used:.2f} processors of this machine meanwhile")
        if self.stolen > _MOST_STOLEN:
            pytest.skip(f"the host of this machine took {self.stolen:.3f} of its processors meanwhile")


@contextlib.contextmanager
def others_work(processors: frozenset[int] | None = None) -> Iterator[OthersWork]:
    """See what others do for the block, on some processors or on all: who is not this process or below it."""
    found = OthersWork()
    began, machine, before = time.monotonic(), MachineTimes.now(processors), _others()
    yield found
    passed, later, now = time.monotonic() - began, MachineTimes.now(processors), _others()
    if machine is not None and later is not None:
        found.stolen = (later.stolen_ns - machine.stolen_ns) / 1e9 / passed
    for pid, (seconds, processor) in now.items():
        if processors is None or processor in processors:
            found.used += max(0.0, seconds - before.get(pid, (0.0, 0))[0]) / passed


def _others() -> dict[int, tuple[float, int]]:
    """Process -> seconds it has used so far, and the processor it was last on; without this one and those below it."""
    mine = {os.getpid(), *ProcessTree(os.getpid()).living_processes()}
    found: dict[int, tuple[float, int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError):
            if int(name) not in mine:
                fields = content(f"/proc/{name}/stat").rpartition(b")")[2].split()
                found[int(name)] = (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[36])
    return found
