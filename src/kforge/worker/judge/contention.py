"""Work of others beside a measurement: how much there was in each ABBA group, and which groups a time may rest on.

Two sources. How many threads are ready to run on the machine is asked right before and right after every block, when
both sides are stopped and only the judge runs: whoever else is there works beside the block. What that misses between
two looks shows in the processors' times, which are told in steps of 10 ms, and so over a tenth of a second or more;
with them what a hypervisor or a quota took. Where neither is told, other work is unknown, not absent.

A judge with processors of its own asks for the times of these. Nobody says where the threads are that a look sees, so
each look counts for no more than what a side waited for a processor: who works elsewhere makes nobody wait. A program
can leave its processors in its own blocks and wait for nothing there; in those of the baseline, which is stopped but in
its turn, it cannot. And what a side uses beyond its processors is others' work: it is on theirs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kforge.worker.judge.scheduler_waits import MachineTimes
from kforge.worker.process_files import content

MOST_OTHERS = 0.1
"""Of a processor: with more than this taken by others, a group is contended."""
LEAST_GROUPS = 5
_WINDOW_NS = 100_000_000
_STEP_NS = 20_000_000
"""What the processors' times may be wrong by over any stretch: a step at either end."""
_LOOKS, _PAUSE_SECONDS = 3, 0.00005
_GROUPS_FILE, _MOUNTS = "/proc/self/cgroup", "/sys/fs/cgroup"


def other_threads_running() -> int | None:
    """Threads on this machine that are ready to run, beside the calling one; None where the kernel does not say.

    Whoever goes to sleep at this moment, such as a keeper that has just answered, is none of them.
    """
    fewest: int | None = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        for look in range(_LOOKS):
            running = int(content("/proc/loadavg").split()[3].partition(b"/")[0])
            # One is the caller's; a kernel that does not count even that counts nothing.
            if not running:
                return None
            fewest = running - 1 if fewest is None else min(fewest, running - 1)
            if not fewest or look + 1 == _LOOKS:
                break
            time.sleep(_PAUSE_SECONDS)
    return fewest


def throttled_ns() -> int:
    """How long a quota has kept this process's group from running so far; 0 where there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in content(_GROUPS_FILE).decode().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "cpu" in controllers.split(","):
                folder = _MOUNTS + (f"/{controllers}" if controllers else "")
                for place in (f"{folder}{path}/cpu.stat", f"{folder}/cpu.stat"):
                    with contextlib.suppress(OSError):
                        return _read_throttled(content(place))
    return 0


def _read_throttled(text: bytes) -> int:
    numbers = {name: int(value) for name, value in (line.split() for line in text.splitlines())}
    return numbers.get(b"throttled_time", 0) or 1000 * numbers.get(b"throttled_usec", 0)


def free_processors(processors: int, threads: int) -> int:
    """How many others may use beside a program of so many threads: half of what it leaves, as two may be one core."""
    return max(0, processors - threads) // 2


def is_contended(others: float, free: int = 0) -> bool:
    """Whether so many processors' worth of other work, with so many `free` for it, takes something from a program."""
    return others > free + MOST_OTHERS


def choose_groups(contended: Sequence[bool]) -> list[int]:
    """The groups that a time rests on: those without other work, or all of them where these are too few."""
    quiet = [number for number, other in enumerate(contended) if not other]
    return quiet if len(quiet) >= LEAST_GROUPS else list(range(len(contended)))


@dataclass
class _Reading:
    """What had been counted up to one moment."""

    clock_ns: int
    machine: MachineTimes | None
    own_ns: int
    throttled_ns: int


@dataclass
class ContentionMeter:
    """Follows a measurement, group by group."""

    own_ns: Callable[[], int]
    """Processor time that the judge and both sides have used so far."""
    own_processors: frozenset[int] | None = None
    """Where others' work counts; None for the whole machine."""
    others: list[float] = field(default_factory=list)
    """Per group: how many processors' worth of other work there was."""
    is_known: bool = False
    """Whether anything told of other work."""
    _looks: list[int] = field(default_factory=list)
    _waited: dict[str, list[float]] = field(default_factory=dict)
    _outside: float = 0.0
    _window: int = 0
    """The first group since the processors' times were last read."""
    _since: _Reading | None = None

    def begin(self) -> None:
        """Begin with the first group."""
        self._clear()
        self._since = self._read()
        self.is_known |= self._since.machine is not None

    def note(self, looks: Iterable[int | None], side: str = "", waited: float = 0.0, used: float = 0.0) -> None:
        """Note how many others were ready to run beside a block of a side; None where nobody said.

        `waited` is the most that others can have taken of its time, as a part of it; `used`, how many processors it
        used.
        """
        known = [running for running in looks if running is not None]
        self.is_known |= bool(known)
        self._looks += known
        self._waited.setdefault(side, []).append(waited)
        if self.own_processors is not None:
            self._outside = max(self._outside, used - len(self.own_processors))

    def end_group(self) -> None:
        """End a group, and begin the next."""
        self.others.append(self._seen())
        self._clear()
        if self._since is not None and time.perf_counter_ns() - self._since.clock_ns > _WINDOW_NS:
            self.settle()

    def settle(self) -> None:
        """Count what the processors' times say of the groups since they were last read."""
        since, now = self._since, self._read()
        if since is None or self._window == len(self.others):
            return
        seen = _others_between(since, now)
        self.others[self._window :] = [max(seen, others) for others in self.others[self._window :]]
        self._window, self._since = len(self.others), now

    def _seen(self) -> float:
        """How many processors' worth of other work the looks of a group tell of."""
        running = _mean(self._looks)
        if self.own_processors is None:
            return running
        # Of the side that waited most: a program that runs elsewhere waits for nobody, the baseline does.
        return max(min(running, max(map(_mean, self._waited.values()), default=0.0)), self._outside)

    def _clear(self) -> None:
        self._looks.clear()
        self._waited.clear()
        self._outside = 0.0

    def _read(self) -> _Reading:
        return _Reading(time.perf_counter_ns(), MachineTimes.now(self.own_processors), self.own_ns(), throttled_ns())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _others_between(since: _Reading, now: _Reading) -> float:
    """How many processors others used, or kept from running, as far as that is beyond what the steps explain."""
    passed = max(1, now.clock_ns - since.clock_ns)
    throttled = (now.throttled_ns - since.throttled_ns) / passed
    if since.machine is None or now.machine is None:
        return throttled
    used = now.machine.busy_ns - since.machine.busy_ns - (now.own_ns - since.own_ns)
    stolen = now.machine.stolen_ns - since.machine.stolen_ns
    return max(0.0, (max(0, used) + stolen - _STEP_NS) / passed) + throttled
