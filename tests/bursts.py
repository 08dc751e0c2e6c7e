"""Other people's work: processes that spin for a moment, rest for a moment, and so on, one on each processor.

    python tests/bursts.py CORE        # one of them, until it is ended

`with bursts.beside():` has one on each of two processors for as long as the block lasts.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

SHORTEST, LONGEST = 0.005, 0.2
"""Seconds of a burst, and of a pause."""


def spin(core: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {core})
    parent = os.getppid()
    while os.getppid() == parent:
        until = time.monotonic() + random.uniform(SHORTEST, LONGEST)
        while time.monotonic() < until:
            pass
        time.sleep(random.uniform(SHORTEST, LONGEST))


@contextlib.contextmanager
def beside(count: int = 2) -> Iterator[None]:
    """That many processes beside the block, spread over the processors."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    command = [sys.executable, "-S", __file__]
    started = [subprocess.Popen([*command, str(cores[number % len(cores)])]) for number in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    spin(int(sys.argv[1]))
