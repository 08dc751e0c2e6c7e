"""The least time that this machine allows for a call of a problem.

The roofline profiler's count of the work and its ceilings of the machine, for every verdict that has a time: the work
is counted once for each problem, the ceilings are read from their file and measured only where there is none yet.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kforge.errors import KForgeError
from kforge.profilers._ceilings import FLOAT32, Ceilings, CeilingsFile
from kforge.profilers.roofline import (
    MEASURED_DEVICES,
    PLUGIN,
    RooflinePoint,
    Work,
    allowed_arithmetic,
    correct_ceilings,
    find_place,
    machine_request,
    read_work,
)
from kforge.types import TimeLimit, Timing
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge.baselines import Baselines
from kforge.worker.judge.lane import NONSENSE
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.runner_handle import ProgramError, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.timed_inputs import TimedInputs
from kforge.worker.judge.trusted_probe import ask_machine, ask_reference
from kforge.worker.protocol.program import RunProbe

_CPU_RATES = (FLOAT32, "float64", "tf32")
"""Arithmetic that is no faster on a processor than float32, whose rate is measured there."""
_COUNT_SECONDS = 30.0
_CLEARLY_FASTER = 1.02
_FAILURES = (ProgramError, RunnerLost, KForgeError, OSError, DeviceMemoryFull, torch.OutOfMemoryError, *NONSENSE)
"""What may go wrong in other processes: no reason to lose a verdict."""


class NoLimit(Exception):
    """The limit cannot be had; the message says why, and is empty where nobody would expect one."""


class TimeLimits:
    """Finds the limit of one problem's calls."""

    def __init__(
        self, cases: ProblemCases, timed_inputs: TimedInputs, baselines: Baselines, trusted: RunnerPool
    ) -> None:
        self._cases = cases
        self._timed_inputs = timed_inputs
        self._baselines = baselines
        self._trusted = trusted
        self._work: Work | None = None
        self._uncounted = ""
        """Why the work could not be counted."""
        self._unmeasured = ""
        """Why the machine could not be measured: it may take long to find out, so that it is tried once."""
        self._corrected = False
        """Whether the ceilings were held against eager's time before: that may measure them again."""

    def find(self, timing: Timing, precision: str) -> TimeLimit:
        """The limit for a program that took this time, in the precision that it is allowed; NoLimit with a reason.

        The device must be free for a measurement.
        """
        device = self._cases.device
        if device.platform.device not in MEASURED_DEVICES:
            raise NoLimit
        if self._cases.problem.form.backward:
            raise NoLimit("the work of a backward pass is not counted")
        eager_ns, speedup = timing.eager_ns, timing.against_eager
        if not eager_ns or speedup is None:
            raise NoLimit("eager was not timed")
        work = self._count_work()
        file = CeilingsFile(device.platform.facts(device.number), self._measure_machine)
        place = find_place(
            work, self._ceilings(file, timing), device.platform.device, self._timed_inputs.working_bytes, precision
        )
        if not self._corrected and not timing.contended:
            self._corrected = True
            # A program may do less than was counted; eager does all of it.
            fastest = min(timing.baseline_ns) * speedup.value / timing.speedup
            place = self._correct_ceilings(place.at(fastest), file)
        unknown = _unknown_arithmetic(place, allowed_arithmetic(work.dtype, precision))
        if unknown:
            raise NoLimit(f"how fast matrix products in {unknown} are on this machine was not measured")
        how = place.limit_text
        if eager_ns * _CLEARLY_FASTER < place.floor_ns:
            how += "; eager takes less: more was counted than has to be done"
        elif eager_ns / speedup.value * _CLEARLY_FASTER < place.floor_ns:
            how += "; the program takes less: it does less than was counted"
        return TimeLimit(place.floor_ns, how)

    def _count_work(self) -> Work:
        """What a call of the reference has to do; counted when first asked for."""
        if self._work is None and not self._uncounted:
            message = RunProbe(PLUGIN.probe(), {"of": "reference"}, self._timed_inputs.seeds()[0])
            try:
                answer = ask_reference(self._baselines, message, _COUNT_SECONDS + self._baselines.deadline())
                self._work = read_work(_dictionary(answer.answer))
                self._baselines.release_memory(self._baselines.lane("eager"))
            except _FAILURES as error:
                self._uncounted = f"the reference's work could not be counted: {str(error)[:200]}"
        if self._work is None:
            raise NoLimit(self._uncounted)
        return self._work

    def _ceilings(self, file: CeilingsFile, timing: Timing) -> Ceilings:
        known = file.known()
        if known is not None:
            return known
        if timing.contended:
            # What is measured now is kept for good.
            raise NoLimit("others use the machine, and what it can do was not measured before")
        if not self._unmeasured:
            try:
                return file.get()
            except _FAILURES as error:
                self._unmeasured = f"what the machine can do could not be measured: {str(error)[:200]}"
        raise NoLimit(self._unmeasured)

    def _correct_ceilings(self, place: RooflinePoint, file: CeilingsFile) -> RooflinePoint:
        try:
            return correct_ceilings(place, math.inf, file)
        except _FAILURES:
            # Those measured before are as good as they were.
            return place

    def _measure_machine(self) -> dict[str, Any]:
        device = self._cases.device
        with device.background.quiet():
            message = RunProbe(PLUGIN.probe(), machine_request(device.platform.device), None)
            return _dictionary(ask_machine(self._trusted, message).answer)


def _unknown_arithmetic(place: RooflinePoint, allowed: str) -> str:
    """The arithmetic that decides the limit and has no ceiling; empty if there is none."""
    decides = place.work.exact > 0 and place.compute_ns > place.memory_ns
    known = dict(place.ceilings.rates) or _CPU_RATES
    return allowed if decides and allowed not in known else ""


def _dictionary(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise ValueError("the probe gave no answer")
    return answer
