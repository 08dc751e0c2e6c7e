"""A judge for each device of a platform, and jobs shared out among them."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from kforge import registry
from kforge.errors import HarnessError, PluginAbsent
from kforge.platforms.base import Platform
from kforge.types import Job, Problem, Report, Settings
from kforge.types.evaluation import hardware_name
from kforge.worker.fault_pause import FaultPauses
from kforge.worker.judge.evaluation import Progress
from kforge.worker.judge.judge import Judge

T = TypeVar("T")
_MOST_BUILDERS, _BUILDER_BYTES = 12, 3 << 30
"""Programs in hand for a device; and what one may take of its host's memory: twelve on an H200 took 18 GiB together."""


class Judges:
    """Takes jobs from several threads. A problem stays with the device that knows it, unless another is idle."""

    def __init__(self, platform: str, devices: tuple[int, ...] = ()) -> None:
        """`devices` are numbers; empty for all there are. Each judge starts with its first job."""
        self._platform: Platform = registry.load("platforms", platform)
        self.devices = usable_devices(self._platform, devices)
        self._judges: dict[int, Judge] = {}
        self._at_work: Counter[int] = Counter()
        self._home: dict[str, int] = {}
        self._pauses = FaultPauses()
        self._closed = False
        self._turn = threading.Lock()
        self._began = time.monotonic()

    def report(self, job: Job, progress: Progress = lambda _: None, apart_from: str = "") -> Report:
        """The report on a job. Raises only if the problem or the harness is at fault.

        With the identity of a device to be apart from, it is of another one of the same model, where there are several.
        Such a one is asked, too, where a device cannot do it: it may be lost, or short of memory.
        """
        others = self._others(apart_from)
        return self._ask(job.problem, lambda judge: judge.report(job, progress), progress, others)

    def check(self, problem: Problem, settings: Settings) -> None:
        """Run a problem's reference once, where its programs will be judged; ProblemError if that is at fault."""
        self._ask(problem, lambda judge: judge.session(problem, settings), lambda _: None)

    def _ask(self, problem: Problem, work: Callable[[Judge], T], progress: Progress, among: tuple[int, ...] = ()) -> T:
        """What a judge gives; another one's, of the same model, where its device cannot do it."""
        first = self._choose(problem, among)
        try:
            return self._ask_one(first, work)
        except HarnessError:
            others = self._others(self._platform.identity(first))
            if self._closed or not others:
                raise
        progress("the device could not do it: asking another")
        return self._ask_one(self._choose(problem, others), work)

    def _ask_one(self, number: int, work: Callable[[Judge], T]) -> T:
        try:
            result = work(self._judge(number))
            self._pauses.end(number)
            return result
        except HarnessError:
            self._pauses.begin(number)
            raise
        finally:
            with self._turn:
                self._at_work[number] -= 1

    def busy_share(self) -> float:
        """Which part of the time since the start the devices were held for judging, on average."""
        spent = time.monotonic() - self._began
        held = sum(judge.lease.busy_seconds for judge in self._judges.values())
        return held / max(spent * len(self.devices), 1e-9)

    def close(self) -> None:
        self._closed = True
        for judge in list(self._judges.values()):
            judge.close()

    def __enter__(self) -> Judges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose(self, problem: Problem, among: tuple[int, ...] = ()) -> int:
        """The device for a problem: the one that knows it, or an idle one; some of them, or all where none is named.

        One that could not do what it was last asked for is left alone for a while, if there are others.
        """
        wanted = among or self.devices
        devices = tuple(number for number in wanted if not self._pauses.holds(number)) or wanted
        with self._turn:
            idle = [number for number in devices if not self._at_work[number]]
            home = self._home.get(problem.id)
            if home is None or home not in devices or (self._at_work[home] and idle):
                home = idle[0] if idle else min(devices, key=lambda number: self._at_work[number])
                if not among:
                    self._home[problem.id] = home
            self._at_work[home] += 1
            return home

    def _others(self, identity: str) -> tuple[int, ...]:
        """The devices of the same model beside the one of that identity; none where it is not one of these."""
        known = [number for number in self.devices if identity and self._platform.identity(number) == identity]
        if not known:
            return ()
        model = hardware_name(self._platform.facts(known[0]))
        return tuple(
            number
            for number in self.devices
            if number not in known and hardware_name(self._platform.facts(number)) == model
        )

    def _judge(self, number: int) -> Judge:
        with self._turn:
            if number not in self._judges:
                self._judges[number] = Judge(self._platform.name, number)
            return self._judges[number]


def usable_devices(platform: Platform, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The devices to judge on, all there are if none is named; PluginAbsent for a platform or a device that is not."""
    reason = platform.unavailable_reason()
    if reason:
        raise PluginAbsent(f"platform {platform.name}: {reason}")
    there = platform.devices()
    strange = [number for number in wanted if number not in there]
    if strange:
        known = ", ".join(map(str, there))
        raise PluginAbsent(f"platform {platform.name}: no device {strange[0]}; there are: {known}")
    return wanted or there


def usual_builders(platform: str) -> int:
    """How many programs to have in hand at once for each device: one where building would disturb the timing."""
    if not registry.load("platforms", platform).builds_apart:
        return 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(max(2, min(_MOST_BUILDERS, (os.cpu_count() or 2) * 3 // 4, memory // _BUILDER_BYTES)))
