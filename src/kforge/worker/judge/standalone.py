"""A program run in a process of its own behind a command, in a fresh sandbox: for profilers, checkers and builders."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kforge.types import Candidate, Settings
from kforge.worker import trees
from kforge.worker.judge.device_turn import DeviceTurn
from kforge.worker.judge.lane import InputSets, Lane
from kforge.worker.judge.runner_handle import RunnerHandle
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.runner_requests import send_standalone
from kforge.worker.judge.session import ProblemSession
from kforge.worker.protocol.program import RunStandalone, StandaloneAnswer

_MAPPING_SECONDS = 60.0
_GRACE_SECONDS = 30.0
_QUEUE_SECONDS = 1800.0


class NeedsTensors(Exception):
    """The module takes tensors to be constructed: such a program cannot be run alone."""


def run_standalone(
    session: ProblemSession,
    candidate: Candidate,
    settings: Settings,
    runner_pool: RunnerPool,
    build: bytes,
    command: tuple[str, ...],
    files: tuple[str, ...],
    seconds: float,
    environment: dict[str, str] | None = None,
    address_space: bool = True,
    turn: DeviceTurn | None = None,
    started: Callable[[RunnerHandle], None] = lambda _: None,
) -> StandaloneAnswer:
    """Run a program alone: how it ended and what it wrote, as the runner says.

    `address_space`: whether its addresses are bounded, too, of which some tools reserve far more than they use.
    `turn`: how it gets the device for its calls; None where the caller holds it. `started` is told of its runner.
    Raises NeedsTensors, or what `RunnerHandle.ask` and shared memory raise.
    """
    cases = session.cases
    tree, tensors = trees.pack(cases.reference.init_arguments)
    if tensors:
        raise NeedsTensors("the module takes tensors to be constructed, and cannot be run alone")
    request = standalone_request(
        candidate.source,
        command,
        seconds,
        files,
        arguments=tree,
        seed=cases.init_seed,
        training=cases.reference.training,
        dtype=cases.problem.form.dtype,
        gradients=cases.reference.gradient_names,
        environment=environment,
    )
    runner = runner_pool.spawn_bounded(settings.limits, cases.set_bytes, address_space)
    with contextlib.ExitStack() as held:
        held.callback(runner.end)
        started(runner)
        if turn is None:
            Lane(runner, session.timed_inputs.unchanged_sets(), cases.outputs, _MAPPING_SECONDS)
            return send_standalone(runner, request, seconds + _GRACE_SECONDS, build)
        is_scarce = cases.device.is_scarce(cases.set_bytes)
        with turn.lease.hold():
            # Of its own: another program of the same problem may be timed on the others meanwhile.
            drawn = InputSets([cases.reference.inputs(cases.derive("alone", 0))], cases.device, read_only=True)
            held.callback(drawn.close)
            if is_scarce:
                Lane(runner, drawn, cases.outputs, _MAPPING_SECONDS)
        if not is_scarce:
            # The process makes itself at home on the device meanwhile, which takes longer than the mapping.
            with cases.device.background.work():
                Lane(runner, drawn, cases.outputs, _MAPPING_SECONDS)
        turn.begin(runner)
        # The turn ends what takes too long; how long others keep the device is not the program's affair.
        longest = 2 * seconds + _QUEUE_SECONDS
        request = replace(request, seconds=longest)
        return send_standalone(runner, request, longest + _GRACE_SECONDS, build, turn.theirs.fileno())


def standalone_request(
    source: str,
    command: tuple[str, ...],
    seconds: float,
    files: tuple[str, ...] = (),
    arguments: Any = None,
    seed: int = 0,
    training: bool | None = None,
    dtype: str = "",
    gradients: tuple[str, ...] | None = None,
    only_load: bool = False,
    environment: dict[str, str] | None = None,
) -> RunStandalone:
    """The request that runs a program alone, behind a command."""
    return RunStandalone(
        source=source,
        class_name="ModelNew",
        command=command,
        seconds=seconds,
        files=files,
        arguments=arguments if arguments is not None else trees.pack([])[0],
        seed=seed,
        training=training,
        dtype=dtype,
        gradients=gradients,
        only_load=only_load,
        environment=environment or {},
    )
