"""One problem, kept from candidate to candidate: its cases, its timed inputs, its baselines, its limit."""

from __future__ import annotations

from kforge.types import Problem, Settings
from kforge.worker.judge.baselines import Baselines
from kforge.worker.judge.device import Device
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.time_limit import TimeLimits
from kforge.worker.judge.timed_inputs import TimedInputs


class ProblemSession:
    """Everything learned of a problem on one platform under one master seed."""

    def __init__(self, problem: Problem, device: Device, trusted: RunnerPool, settings: Settings, seed: int) -> None:
        self.cases = ProblemCases(problem, device, seed)
        self.timed_inputs = TimedInputs(self.cases)
        self.baselines = Baselines(self.cases, self.timed_inputs, trusted, settings.timing_seconds)
        self.time_limits = TimeLimits(self.cases, self.timed_inputs, self.baselines, trusted)

    def close(self) -> None:
        self.baselines.close()
        self.timed_inputs.close()
