"""Probes that look at what is trusted: the reference in eager's runner, or the machine from a runner of its own."""

from __future__ import annotations

from kforge.types import Limits
from kforge.worker.judge.baselines import Baselines
from kforge.worker.judge.runner_handle import RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.protocol.program import ProbeAnswer, RunProbe

_MACHINE_SECONDS = 60.0


def ask_reference(baselines: Baselines, message: RunProbe, seconds: float) -> ProbeAnswer:
    """What a probe answers beside the reference; ProgramError or RunnerLost if it gives no answer."""
    try:
        lane = baselines.lane("eager")
        lane.bring_inputs()
        return lane.runner.ask(message, seconds)
    except RunnerLost:
        # A late answer must not be taken for the answer to a later question.
        baselines.drop("eager")
        raise


def ask_machine(trusted: RunnerPool, message: RunProbe) -> ProbeAnswer:
    """What a probe answers where there is no program; ProgramError or RunnerLost if it gives no answer."""
    runner = trusted.spawn(Limits())
    try:
        return runner.ask(message, _MACHINE_SECONDS)
    finally:
        runner.end()
