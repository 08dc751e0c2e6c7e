"""One problem, kept from candidate to candidate: at each of its workloads, and at sizes inside its ranges."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kforge.errors import ProblemError
from kforge.types import Problem, Settings, Workload
from kforge.worker.judge import audit
from kforge.worker.judge.baselines import Baselines
from kforge.worker.judge.device import Device
from kforge.worker.judge.held_out_sizes import HeldOutSizes
from kforge.worker.judge.lane import InputSets, Lane
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.runner_handle import RunnerHandle
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.time_limit import TimeLimits
from kforge.worker.judge.timed_inputs import TimedInputs

_LEAST_SHARE = 0.25
"""Of the time and of the seeds that one workload alone would get, for each of very many."""
_LEAST_SEEDS = 2


class WorkloadSession:
    """Everything learned of a problem at one workload: its cases, its timed inputs, its baselines, its limit."""

    def __init__(
        self,
        cases: ProblemCases,
        trusted: RunnerPool,
        timing_seconds: float,
        name: str = "",
        weight: float = 1.0,
        is_further: bool = False,
    ) -> None:
        self.cases = cases
        self.timed_inputs = TimedInputs(cases, is_further)
        self.baselines = Baselines(cases, self.timed_inputs, trusted, timing_seconds)
        self.time_limits = TimeLimits(cases, self.timed_inputs, self.baselines, trusted)
        self._first_call: list[Any] | None = None
        self.workload_name = name
        """What people call the workload; empty where the problem has but one."""
        self.weight = weight
        """Its share of the mean; the shares of all add up to 1."""
        self.is_further = is_further
        """Whether another workload is always timed right before."""

    def draw_first_call(self) -> None:
        """Draw the inputs of a first call; left out where they would be a good part of the device's memory."""
        if not self.cases.device.is_scarce(self.cases.set_bytes):
            self._first_call = self.cases.reference.inputs(self.cases.derive("first call", 0))

    def make_first_call(
        self,
        runner: RunnerHandle,
        seconds: float,
        calling: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Have a runner make a call whose result nobody looks at, in which it compiles and loads libraries.

        Its inputs are its own, since a program may find a way to write to them; without any, no call is made.
        `calling` is entered for the call itself.
        """
        if self._first_call is None:
            return
        with contextlib.closing(InputSets([self._first_call], self.cases.device, read_only=True)) as sets:
            lane = Lane(runner, sets, self.cases.outputs, seconds)
            with calling():
                lane.warm_up([None])
            lane.release(seconds)

    def close(self) -> None:
        self.baselines.close()
        self.timed_inputs.close()


class ProblemSession:
    """Everything learned of a problem on one platform under one master seed.

    `cases`, `timed_inputs`, `baselines` and `time_limits` are those of its first workload.
    """

    def __init__(self, problem: Problem, device: Device, trusted: RunnerPool, settings: Settings, seed: int) -> None:
        self.problem = problem
        self.seed = seed
        declared = problem.workloads
        first = ProblemCases(problem.at(declared[0]) if declared else problem, device, seed)
        self.workloads: list[WorkloadSession] = []
        for number, (workload, weight) in enumerate(problem.workload_shares or ((Workload(), 1.0),)):
            cases = first if not number else self._further_cases(problem, workload, number, first)
            name = str(workload) if len(declared) > 1 else ""
            seconds = self.settings_for(settings, number).timing_seconds
            self.workloads.append(WorkloadSession(cases, trusted, seconds, name, weight, is_further=number > 0))
        self.cases = first
        self.timed_inputs = self.workloads[0].timed_inputs
        self.baselines = self.workloads[0].baselines
        self.time_limits = self.workloads[0].time_limits
        self.held_out = HeldOutSizes(problem, first) if problem.dynamic else None
        """Sizes inside the declared ranges, where there are any."""

    @property
    def set_bytes(self) -> int:
        """What a call reads and writes, on all workloads together."""
        return sum(workload.cases.set_bytes for workload in self.workloads)

    def settings_for(self, settings: Settings, number: int) -> Settings:
        """The settings of one workload: each of many has a share of the time, and fewer seeds unless it is first."""
        share = min(1.0, max(_LEAST_SHARE, 2 / max(1, len(self.problem.workloads))))
        seeds = settings.seeds if not number else min(settings.seeds, max(_LEAST_SEEDS, round(share * settings.seeds)))
        return replace(settings, timing_seconds=share * settings.timing_seconds, seeds=seeds)

    @property
    def degenerate(self) -> tuple[str, ...]:
        """Why the problem is unsound; a workload that is too small to be timed makes it so only if all of them are."""
        if len(self.workloads) == 1:
            return self.cases.degenerate
        small = all(any(map(audit.is_of_time, each.cases.degenerate)) for each in self.workloads)
        return tuple(
            f"{reason} ({each.workload_name})"
            for each in self.workloads
            for reason in each.cases.degenerate
            if small or not audit.is_of_time(reason)
        )

    @staticmethod
    def _further_cases(problem: Problem, workload: Workload, number: int, first: ProblemCases) -> ProblemCases:
        at = problem.at(workload)
        # With few seeds each, different workloads see different distributions beside the natural one.
        names = [name for name in problem.distributions if name != "natural"]
        turned = names[number % len(names) :] + names[: number % len(names)] if names else []
        natural = [name for name in problem.distributions if name == "natural"]
        at = replace(at, distributions=(*natural, *turned))
        cases = ProblemCases(at, first.device, first.derive("workload", number), first.init_seed)
        if first.has_same_arguments(cases) and not first.has_same_state(cases):
            raise ProblemError(
                f"with {workload} the module holds other tensors than with {problem.workloads[0]}, and "
                "get_init_inputs() gives the same for both, so that no program could tell: pass what differs to Model "
                "through get_init_inputs()",
                path=problem.path or problem.name,
            )
        return cases

    def close(self) -> None:
        for workload in self.workloads:
            workload.close()
