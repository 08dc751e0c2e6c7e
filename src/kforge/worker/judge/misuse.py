"""What a program that passed does outside of what it was verified for: no part of the outcome, but said with it."""

from __future__ import annotations

import torch

from kforge.types import TensorLayout
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge.candidate_module import CandidateModule
from kforge.worker.judge.generality import GeneralityTrial
from kforge.worker.judge.hazards import Calling, HazardTrial, can_be_tried
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.judge.session import ProblemSession

_TOO_LARGE = "too large to try what it does outside of what was verified"
_FAILED = "what it does outside of what was verified could not be tried"


class MisuseTrial:
    """Changed parameters, gradients and other inputs, in the runner that judged the program.

    What the reference gives is found first, and needs the device; `run` does not need it for itself.
    """

    def __init__(
        self, session: ProblemSession, runner: RunnerHandle, module: CandidateModule, seconds: float, calling: Calling
    ) -> None:
        """`calling` is entered for each of the program's calls."""
        self._session = session
        self._module = module
        self._seconds = seconds
        self._changed: HazardTrial | None = None
        self._other_inputs: GeneralityTrial | None = None
        self.layouts: list[TensorLayout] = module.layouts
        """The module's parameters and buffers after its calls."""
        self.hazards: list[str] = []
        self.generality: list[str] = []
        self.notes: list[str] = []
        cases = session.cases
        if not can_be_tried(cases):
            self.notes.append(_TOO_LARGE)
            return
        try:
            changed = HazardTrial(runner, cases, module.matches, seconds, calling)
            # Where sizes are declared, these have been tried.
            declared = session.problem.workloads or session.problem.dynamic
            if not declared and not cases.reference.backward:
                self._other_inputs = GeneralityTrial(runner, cases, seconds, calling)
            self._changed = changed
        except (DeviceMemoryFull, torch.OutOfMemoryError):
            self.notes.append(_FAILED)

    @property
    def makes_calls(self) -> bool:
        """Whether there is anything to run."""
        return self._changed is not None

    def run(self) -> None:
        """Make the calls; the runner may not survive them."""
        if self._changed is None:
            return
        try:
            self._module.send_state(self._session.cases.timed_state, self._seconds)
            self.hazards += self._changed.hazards()
            if self._changed.is_alive and self._other_inputs is not None:
                self._other_inputs.run()
                self.generality += self._other_inputs.lines
                self.hazards += self._other_inputs.hazards
        except (RunnerLost, ProgramError, DeviceMemoryFull, torch.OutOfMemoryError):
            self.notes.append(_FAILED)
        self.layouts = self._changed.layouts or self.layouts
