"""What goes wrong with a candidate's runner, as a refusal with a sentence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from kforge.platforms.base import Platform
from kforge.types import Outcome
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge import emulated_size, explain, interleaved_timer
from kforge.worker.judge.baselines import Unsettled
from kforge.worker.judge.held_lane import NotOwned
from kforge.worker.judge.held_outputs import InputsChanged, WrongOutput
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.refusal import Refused
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost

_LETTING_GO_SECONDS = 3.0


def refuse_findings(runner: RunnerHandle) -> None:
    """Refuse a candidate for what its runner noted."""
    for rule, what in runner.findings:
        raise Refused(Outcome.REJECTED, what, rule if rule in explain.RULES else "protocol") from None


def refuse_patches(patched: list[str]) -> None:
    """Refuse a candidate that replaced parts of torch, of the clock or of the runner."""
    if patched:
        raise Refused(Outcome.REJECTED, f"it replaced {', '.join(patched[:5])}", "patched_torch")


class RunnerFailures:
    """Explains the failures of one candidate's runner on one problem."""

    def __init__(self, cases: ProblemCases, platform: Platform) -> None:
        self._cases = cases
        self._device = cases.device
        self._platform = platform

    @contextlib.contextmanager
    def explain(self, runner: RunnerHandle, phase: str) -> Iterator[None]:
        """Turn whatever goes wrong with the runner into a refusal; another runner's failures pass through."""
        try:
            yield
        except RunnerLost as error:
            if error.runner is not None and error.runner is not runner:
                raise
            if error.kind in ("timeout", "memory"):
                runner.kill()
            ending = runner.end()
            refuse_findings(runner)
            outcome, rule, sentence = explain.lost_runner(
                phase, error, ending, emulated_size.size_advice(self._cases.problem, self._platform)
            )
            raise Refused(outcome, sentence + explain.printed_tail(ending), rule) from None
        except ProgramError as error:
            if error.runner is not None and error.runner is not runner:
                raise
            ending = runner.end()
            refuse_findings(runner)
            outcome, sentence = explain.program_error(error.phase, error.report, ending.output)
            if outcome is not Outcome.COMPILATION_FAILURE:
                sentence += explain.printed_tail(ending)
            raise Refused(outcome, sentence) from None
        except interleaved_timer.NotIdle as error:
            raise Refused(Outcome.REJECTED, str(error), "not_idle") from None
        except Unsettled:
            what = "the output still changed after forward had returned"
            raise Refused(Outcome.REJECTED, what, "unsettled_output") from None
        except NotOwned as error:
            raise Refused(Outcome.REJECTED, str(error), "output_type") from None
        except InputsChanged:
            raise Refused(Outcome.REJECTED, "a timed call changed its inputs in place", "input_modified") from None
        except WrongOutput as error:
            raise Refused(Outcome.MISMATCH, f"a timed call gave a wrong result: {error}") from None
        except (DeviceMemoryFull, torch.OutOfMemoryError):
            self.refuse_hoarder(runner, phase)
            raise

    def refuse_hoarder(self, runner: RunnerHandle, phase: str) -> None:
        """Refuse a candidate that held the device's memory, where somebody found too little of it."""
        if not self._device.has_own_memory:
            return
        held = self._kill_and_count_freed(runner)
        if held > self._device.memory_bytes // 4:
            message = f"it held {held >> 30} GiB of the device's memory during {phase}, and {explain.LEFT_TOO_LITTLE}"
            raise Refused(Outcome.RUNTIME_ERROR, message) from None

    def _kill_and_count_freed(self, runner: RunnerHandle) -> int:
        """End the runner: the bytes that are free on the device once it is gone, and were not before."""
        before = self._device.free_bytes()
        runner.kill()
        deadline = time.monotonic() + _LETTING_GO_SECONDS
        gained = 0
        while time.monotonic() < deadline and gained <= self._device.memory_bytes // 4:
            time.sleep(0.1)
            gained = self._device.free_bytes() - before
        return gained
