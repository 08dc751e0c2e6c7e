"""The baselines of one problem: the reference, eager and compiled, in processes like the candidate's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from kforge.platforms.base import Platform
from kforge.types import BaselineTime, Limits, Settings
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge import claimed_timer, statistics
from kforge.worker.judge.against_eager import difference_from_eager
from kforge.worker.judge.claimed_timer import ClaimedTimer
from kforge.worker.judge.compare import Tolerance, same_bits
from kforge.worker.judge.device_lane import DeviceLane
from kforge.worker.judge.device_timer import DeviceTimer, Quiet
from kforge.worker.judge.explain import strip_advice
from kforge.worker.judge.held_lane import HeldLane
from kforge.worker.judge.held_outputs import InputsChanged, OutputCheck, WrongOutput
from kforge.worker.judge.host_timer import HostTimer
from kforge.worker.judge.integrity import Observation, read_observation
from kforge.worker.judge.interleaved_timer import Samples
from kforge.worker.judge.lane import Lane, TimedBlock
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.runner_requests import send_load, send_state
from kforge.worker.judge.timed_inputs import TimedInputs
from kforge.worker.matrix_precision import allows
from kforge.worker.protocol.calls import MeasureSavedMemory
from kforge.worker.protocol.program import LoadPickled, LoadProgram

FirstCall = Callable[[RunnerHandle, float], None]
"""Has a runner make a call that nobody looks at, in so many seconds at most."""

_TIMES_AGAIN = 2
_COMPILE_SECONDS = 600.0
_MODES = {"compile": "default", "compile_tf32": "default", "autotune": "max-autotune"}
"""Baseline -> torch.compile's mode."""
_IN_TF32 = ("tf32", "compile_tf32")
_FAILURES = (ProgramError, RunnerLost, DeviceMemoryFull, torch.OutOfMemoryError)
"""What may go wrong with one baseline without harm to the others."""
PROCESS_BYTES = 1 << 30
"""What a process takes of a device's memory before it holds anything."""
_LEAST_DEVIATION, _LEAST_ON_PROCESSOR = 0.005, 0.03
"""By how much the same work may differ from one process to the next on a GPU, and on the processor: one comparison of
twins does not tell how much it is for others.
"""
_LABELS = {
    "compile": "torch.compile",
    "autotune": "torch.compile with max-autotune",
    "tf32": "eager with TF32",
    "compile_tf32": "torch.compile with TF32",
}


def wanted_baselines(settings: Settings, platform: Platform) -> tuple[str, ...]:
    """The baselines to time, in order; without torch.compile nothing is held against the best of them."""
    wanted = ["eager"]
    with_compile = settings.compile_baseline or settings.baseline in ("compile", "compile_tf32", "best")
    has_tf32 = "tf32" in platform.baselines
    allows_tf32 = allows(settings.precision, "tf32")
    if has_tf32 and (with_compile or settings.baseline == "tf32" or allows_tf32):
        wanted.append("tf32")
    if with_compile:
        wanted.append("compile")
        if has_tf32 and (settings.baseline == "compile_tf32" or allows_tf32):
            # What its user could have had in the precision that a candidate may use.
            wanted.append("compile_tf32")
    if settings.autotune_baseline or settings.baseline == "autotune":
        wanted.append("autotune")
    return tuple(wanted)


class Baselines:
    """Lanes that run the reference, made when first asked for, and what they showed."""

    def __init__(
        self, cases: ProblemCases, timed_inputs: TimedInputs, trusted: RunnerPool, timing_seconds: float
    ) -> None:
        self._cases = cases
        self._timed_inputs = timed_inputs
        self._trusted = trusted
        self._timing_seconds = max(timing_seconds, 0.3)
        self._started: dict[str, RunnerHandle] = {}
        """Processes that no lane was made of yet."""
        self._lanes: dict[str, Lane] = {}
        self._ratios: dict[str, BaselineTime] = {}
        self._observation: Observation | None = None
        self._self_deviation: float | None = None
        self._saved_bytes: int | None = None
        self._usual_ns: dict[str, float] = {}
        self._quiet: dict[int, Quiet] = {}
        """By how many calls are launched at a time, on a device."""
        self._turns: dict[str, threading.Lock] = {}
        self._times_again: dict[str, int] = {}
        """How often what was measured beside others' work may still be measured again."""

    def lane(self, name: str) -> Lane:
        """The runner that times a baseline, made when first asked for; two threads make it once."""
        with self._turn_of(name):
            if name not in self._lanes:
                self._lanes[name] = self._make(name)
            return self._lanes[name]

    def start(self, wanted: tuple[str, ...], first_call: FirstCall = lambda runner, seconds: None) -> None:
        """Start the processes of baselines that are yet to be measured, side by side, where there is room for them.

        Each makes its `first_call`, in which libraries are loaded. What fails here fails again when it is
        measured, and is said then.
        """
        if self._self_deviation is not None:
            return
        names = ["eager", "eager twin", *(name for name in wanted[1:] if self._has_own_time(name))]
        state, device = self._cases.reference.state_bytes, self._cases.device
        device.give_back_all(self._cases.call_bytes)
        # Parameters, and what they come in; then calls need their share.
        each = 2 * state + self._cases.call_bytes + PROCESS_BYTES
        if len(names) * each + 4 * self._cases.set_bytes > device.free_bytes():
            return
        with ThreadPoolExecutor(len(names), "baselines") as threads:
            list(threads.map(lambda name: self._start_ahead(name, first_call), names))

    def _has_own_time(self, name: str) -> bool:
        """Whether it is another program than the same without TF32."""
        return name not in _IN_TF32 or self._cases.accepts_tf32 is not None

    def _start_ahead(self, name: str, first_call: FirstCall) -> None:
        with self._turn_of(name), contextlib.suppress(*_FAILURES):
            # Another thread may have measured it meanwhile.
            known = self._self_deviation is not None or (name in self._ratios and name != "eager")
            if not known and name not in self._lanes and name not in self._started:
                runner = self._start(name)
                try:
                    if name not in _MODES:
                        first_call(runner, _COMPILE_SECONDS)
                except BaseException:
                    runner.kill()
                    raise
                self._started[name] = runner

    def make_ready(self, wanted: tuple[str, ...]) -> None:
        """Let torch.compile do its work before the device is held, for baselines that are yet to be measured.

        What fails here fails again when it is measured, and is said then.
        """
        if self._cases.device.is_scarce(self._cases.set_bytes):
            return
        for name in wanted:
            if name in _MODES and name not in self._ratios:
                with contextlib.suppress(*_FAILURES):
                    self.lane(name)

    def _turn_of(self, name: str) -> threading.Lock:
        return self._turns.setdefault(name, threading.Lock())

    def _make(self, name: str) -> Lane:
        runner = self._started.pop(name, None) or self._start(name)
        try:
            lane = self._timed_inputs.lane(runner, self.deadline() + _COMPILE_SECONDS)
            lane.warm_up(self._timed_inputs.seeds())
        except BaseException:
            runner.kill()
            raise
        return lane

    def _start(self, name: str) -> RunnerHandle:
        """A process that holds the reference's module, with the parameters of timed calls."""
        runner = self._trusted.spawn(Limits(build_seconds=_COMPILE_SECONDS))
        try:
            self._load(runner, name)
            if self._cases.timed_state:
                values = list(self._cases.timed_state.items())
                send_state(runner, values, self.deadline() + 60, self._cases.device)
        except BaseException:
            runner.kill()
            raise
        return runner

    def _load(self, runner: RunnerHandle, name: str) -> None:
        training, mode, tf32 = self._cases.reference.training, _MODES.get(name, ""), name in _IN_TF32
        gradients = self._cases.reference.gradient_names
        if self._cases.problem.payload:
            with open(self._cases.problem.payload, "rb") as file:
                runner.ask(LoadPickled(training, mode, tf32, gradients), 60, (file.fileno(),))
        else:
            request = LoadProgram(
                source=self._cases.reference.source,
                class_name="Model",
                watched=False,
                training=training,
                compile_mode=mode,
                tf32=tf32,
                dtype=self._cases.problem.form.dtype,
                gradients=gradients,
                known=self._cases.tensor_shapes(),
            )
            send_load(runner, request, self._cases.reference.init_arguments, self._cases.init_seed, 120)

    def deadline(self) -> float:
        """How long the reference itself may reasonably need for a block."""
        return 20 * self._cases.call_seconds * self._timed_inputs.count() + 2e-9 * self._cases.set_bytes

    def observation(self) -> Observation:
        """Which operators the reference runs."""
        if self._observation is None:
            seeds = (self._cases.derive("observe", 0), self._cases.derive("observe", 1))
            self._observation = read_observation(*self.lane("eager").observe(0, seeds), ())
        return self._observation

    def saved_bytes(self) -> int:
        """The memory that eager holds between forward and backward."""
        if self._saved_bytes is None:
            request = MeasureSavedMemory(0, self._cases.derive("observe", 2))
            lane = self.lane("eager")
            lane.bring_inputs()
            self._saved_bytes = lane.runner.ask(request, self.deadline() + 60).saved_bytes
        return self._saved_bytes

    def self_deviation(self) -> float:
        """How far eager against itself, in two processes, is from 1 on this machine: a floor for every interval."""
        if self._self_deviation is None or self._times_again.get("eager"):
            least = _LEAST_DEVIATION if self._cases.device.has_own_memory else _LEAST_ON_PROCESSOR
            self._self_deviation = max(least, self.measure_itself())
        return self._self_deviation

    def measure_itself(self, most_ahead: int | None = None) -> float:
        """Time eager against itself: how far from 1, and what it usually takes, with so many calls ahead at most."""
        eager = self.lane("eager")
        timer = self.timer(self.lane("eager twin"), eager, self._timing_seconds, watched=False)
        if isinstance(timer, DeviceTimer):
            timer.most = most_ahead
        with self._cases.limit_threads():
            samples = timer.run()
        self.release_memory(eager)
        if isinstance(timer, DeviceTimer) and timer.seen is not None:
            self._quiet[timer.baseline.at_a_time] = timer.seen
        if most_ahead is None:
            self._usual_ns["eager"] = statistics.median(samples.baseline)
        self.drop("eager twin")
        self._note_contention("eager", samples)
        return abs(statistics.median(samples.ratios()) - 1.0)

    def _quiet_times(self, at_a_time: int) -> Quiet | None:
        """What is usual with so many calls launched at a time; measured when it is first asked for."""
        if at_a_time not in self._quiet:
            with contextlib.suppress(*_FAILURES):
                self.measure_itself(at_a_time)
        return self._quiet.get(at_a_time)

    def _usual_call_ns(self, lane: DeviceLane, at_a_time: int) -> float:
        known = self._quiet.get(at_a_time)
        if lane is self._lanes.get("eager"):
            return known.call_ns if known is not None else 0.0
        name = next((name for name, other in self._lanes.items() if other is lane), "")
        return self._usual_ns.get(name, 0.0) if at_a_time == lane.most_ahead else 0.0

    def usual_ns(self, name: str) -> float:
        """What a call of this baseline took beside nothing but itself; 0 where that was not measured that way."""
        lane = self._lanes.get(name)
        if isinstance(lane, DeviceLane) and lane.at_a_time != lane.most_ahead:
            return 0.0
        return self._usual_ns.get(name, 0.0)

    def ratios(self, wanted: tuple[str, ...]) -> dict[str, BaselineTime]:
        """The wanted baselines with their speed against eager, and those known already; each measured once."""
        self._ratios.setdefault("eager", BaselineTime("eager", 1.0))
        for name in wanted:
            if name not in self._ratios or (name != "eager" and self._times_again.get(name)):
                self._ratios[name] = self._measure(name)
        return dict(self._ratios)

    def _note_contention(self, name: str, samples: Samples) -> None:
        """Have what was measured beside others' work measured again for later programs, a few times at most."""
        left = self._times_again.get(name, _TIMES_AGAIN + 1) - 1
        self._times_again[name] = left if samples.contended else 0

    def _measure(self, name: str) -> BaselineTime:
        label = _LABELS[name]
        if not self._has_own_time(name):
            usual = "eager" if name == "tf32" else "compile"
            ratio = self.ratios((usual,))[usual].ratio
            return BaselineTime(name, ratio, f"no float32 matrix product in it: the same as {usual}")
        precision = "tf32" if name in _IN_TF32 and not self._cases.accepts_tf32 else ""
        try:
            other, eager = self.lane(name), self.lane("eager")
            limits = Tolerance(self._cases.problem.tolerances, precision)
            samples = self._run_timer(other, eager, limits)
            self._usual_ns[name] = statistics.median(samples.candidate)
            self._note_contention(name, samples)
            notes = [f"lower precision: counts as a baseline with --precision {precision}"] if precision else []
            notes += ["contended: others used the machine while it was measured"] if samples.contended else []
            ratio = statistics.median(samples.ratios())
            self._ratios[name] = BaselineTime(name, ratio, "; ".join(notes), precision)
            if self._cases.device.has_own_memory:
                # Its memory is worth more than the moment it takes to make it again.
                self.drop(name)
            return self._ratios[name]
        except ProgramError as error:
            if error.runner is not None and error.runner is self._runner_of("eager"):
                raise
            reason = f"{label} failed: {describe_baseline_error(error)}"
        except WrongOutput as error:
            reason = f"the output of {label} is wrong here: {error}"
        except (RunnerLost, DeviceMemoryFull, torch.OutOfMemoryError) as error:
            lost = error.runner if isinstance(error, RunnerLost) else None
            if lost is not None and lost is self._runner_of("eager"):
                raise
            reason = f"{label}: {error}"
        self.drop(name)
        return BaselineTime(name, None, reason[:500])

    def _runner_of(self, name: str) -> RunnerHandle | None:
        lane = self._lanes.get(name)
        return lane.runner if lane is not None else None

    def _run_timer(self, candidate: Lane, baseline: Lane, limits: Tolerance | None = None) -> Samples:
        with self._cases.limit_threads():
            samples = self.timer(candidate, baseline, self._timing_seconds, limits, watched=False).run()
        self.release_memory(baseline)
        return samples

    def timer(
        self,
        candidate: Lane,
        baseline: Lane,
        seconds: float,
        limits: Tolerance | None = None,
        every: bool = False,
        watched: bool = True,
    ) -> HostTimer | DeviceTimer | ClaimedTimer:
        """A measurement of one lane against another, as it is made on this device.

        With `limits`, outputs are verified; `every` asks for all of them, `watched` says that nobody trusts it.
        """
        refresh, seeds = self._timed_inputs.refresh, self._timed_inputs.seeds
        verified = OutputCheck(self._cases, self._timed_inputs, limits) if limits is not None else None
        if isinstance(candidate, DeviceLane) and isinstance(baseline, DeviceLane):
            timer = DeviceTimer(candidate, baseline, refresh, seconds, seeds, verified, every, watched, bare=watched)
            timer.rest = self._comes_to_rest
            if watched:
                timer.quiet = self._quiet_times
                timer.usual_ns = lambda at_a_time: self._usual_call_ns(baseline, at_a_time)
            return timer
        if isinstance(candidate, HeldLane) and isinstance(baseline, HeldLane):
            return HostTimer(candidate, baseline, refresh, seconds, seeds, verified, every, watched)
        checked = self._checker(limits) if limits is not None else None
        return ClaimedTimer(candidate, baseline, refresh, seconds, seeds, checked, check_all=every, watched=watched)

    def _comes_to_rest(self, seconds: float) -> bool:
        """Whether the device has nothing to do, once what goes on beside is waited for; others on it excuse it."""
        device = self._cases.device
        if device.clock.wait_until_idle(seconds):
            return True
        with device.background.quiet() as rests:
            if not rests or device.clock.wait_until_idle(seconds):
                return True
            # What somebody launched who is frozen now goes on.
            return device.background.is_frozen or bool(device.platform.busy_because(device.number))

    def release_memory(self, lane: Lane) -> None:
        """Let a lane's process give up what it only keeps for later, where memory is short."""
        if self._cases.device.is_scarce(self._cases.set_bytes):
            lane.release(60.0)

    def _checker(self, limits: Tolerance) -> claimed_timer.Check:
        """Verifies a timed call's output against eager on the very inputs it had."""

        def check(lane: Lane, slot: int, block: TimedBlock) -> None:
            if not all(leaf.delivered for leaf in block.outputs[slot].leaves):
                raise WrongOutput("a timed call returned something of another shape or type")
            inputs = self._timed_inputs.content(slot)
            wrong = difference_from_eager(
                self._cases,
                self._timed_inputs.arguments(slot, inputs),
                self._timed_inputs.seeds()[slot] or 0,
                self._timed_inputs.distribution(slot),
                lane.slots[slot],
                limits,
            )
            if wrong:
                raise WrongOutput(wrong)
            if not lane.sample_is_settled(block):
                raise Unsettled
            if not all(map(same_bits, self._timed_inputs.sets().tensors[slot], inputs)):
                raise InputsChanged

        return check

    def forget(self, runner: RunnerHandle | None) -> None:
        """End whichever lane a runner belongs to."""
        for name in [name for name, lane in list(self._lanes.items()) if lane.runner is runner]:
            self.drop(name)

    def drop(self, name: str) -> None:
        """End a lane, for one that is done or no longer answers; it is made again when asked for."""
        lane, started = self._lanes.pop(name, None), self._started.pop(name, None)
        if lane is not None:
            lane.runner.kill()
        if started is not None:
            started.kill()

    def close(self) -> None:
        for name in [*self._lanes, *self._started]:
            self.drop(name)


def describe_baseline_error(error: ProgramError | RunnerLost) -> str:
    """What went wrong with a process that runs the reference, in one line."""
    if isinstance(error, RunnerLost):
        return str(error)
    message = strip_advice(error.report.message).splitlines()
    return f"{error.report.kind}: {message[-1] if message else ''}"


class Unsettled(Exception):
    """A slot was written to after the runner had said it was done."""
