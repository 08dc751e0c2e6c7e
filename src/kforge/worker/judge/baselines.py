"""The baselines of one problem: the reference, eager and compiled, in processes like the candidate's."""

from __future__ import annotations

import contextlib
import threading

import torch

from kforge.platforms.face import Platform
from kforge.types import BaselineTime, Limits, Settings
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge import claimed_duel, statistics
from kforge.worker.judge.against_eager import difference_from_eager
from kforge.worker.judge.casebook import CaseBook
from kforge.worker.judge.claimed_duel import ClaimedDuel
from kforge.worker.judge.compare import Tolerance, same_bits
from kforge.worker.judge.device_duel import DeviceDuel, Quiet
from kforge.worker.judge.device_lane import DeviceLane
from kforge.worker.judge.explain import without_advice
from kforge.worker.judge.held_lane import HeldLane
from kforge.worker.judge.held_outputs import InputsChanged, OutputCheck, WrongOutput
from kforge.worker.judge.host_duel import HostDuel
from kforge.worker.judge.integrity import Observation, read_observation
from kforge.worker.judge.lane import Block, Lane
from kforge.worker.judge.nursery import Nursery
from kforge.worker.judge.rotation import Rotation
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.judge.runner_requests import send_load, send_state
from kforge.worker.judge.timing import Samples

_COMPILE_SECONDS = 600.0
_MODES = {"compile": "default", "autotune": "max-autotune"}
"""Baseline -> torch.compile's mode."""
_MATRIX_WORK = ("mm", "linear", "conv", "dot", "attention", "gru", "lstm")
"""Parts of names of operators that multiply matrices."""
_LEAST_DEVIATION = 0.005
"""By how much the same work may differ from one process to the next on a GPU."""
_WORDS = {"compile": "torch.compile", "autotune": "torch.compile with max-autotune", "tf32": "eager with TF32"}


def wanted_baselines(settings: Settings, platform: Platform) -> tuple[str, ...]:
    """The baselines to time, in order."""
    wanted = ["eager"]
    if "tf32" in platform.baselines:
        wanted.append("tf32")
    if settings.compile_baseline or settings.baseline in ("compile", "best"):
        wanted.append("compile")
    if settings.autotune_baseline or settings.baseline == "autotune":
        wanted.append("autotune")
    return tuple(wanted)


class Baselines:
    """Lanes that run the reference, made when first asked for, and what they showed."""

    def __init__(self, book: CaseBook, rotation: Rotation, trusted: Nursery, timing_seconds: float) -> None:
        self._book = book
        self._rotation = rotation
        self._trusted = trusted
        self._timing_seconds = max(timing_seconds, 0.3)
        self._lanes: dict[str, Lane] = {}
        self._ratios: dict[str, BaselineTime] = {}
        self._observation: Observation | None = None
        self._self_deviation: float | None = None
        self._usual_ns: dict[str, float] = {}
        self._quiet: dict[int, Quiet] = {}
        """By how many calls are launched at a time, on a device."""
        self._turns: dict[str, threading.Lock] = {}

    def lane(self, name: str) -> Lane:
        """The runner that times a baseline, made when first asked for; two threads make it once."""
        with self._turns.setdefault(name, threading.Lock()):
            if name not in self._lanes:
                self._lanes[name] = self._make(name)
            return self._lanes[name]

    def make_ready(self, wanted: tuple[str, ...]) -> None:
        """Let torch.compile do its work before the device is held, for baselines that are yet to be measured.

        What fails here fails again when it is measured, and is said then.
        """
        if self._book.site.is_scarce(self._book.set_bytes):
            return
        for name in wanted:
            if name in _MODES and name not in self._ratios:
                with contextlib.suppress(ProgramError, RunnerLost, DeviceMemoryFull, torch.OutOfMemoryError):
                    self.lane(name)

    def _make(self, name: str) -> Lane:
        runner = self._trusted.spawn(Limits(build_seconds=_COMPILE_SECONDS))
        try:
            self._load(runner, name)
            if self._book.timed_state:
                send_state(runner, list(self._book.timed_state.items()), self.deadline() + 60)
            lane = self._rotation.lane(runner, self.deadline() + _COMPILE_SECONDS)
            lane.warm_up(self._rotation.seeds())
        except BaseException:
            runner.kill()
            raise
        return lane

    def _load(self, runner: RunnerHandle, name: str) -> None:
        shared = {
            "training": self._book.reference.training,
            "compile": _MODES.get(name, ""),
            "tf32": name == "tf32",
        }
        if self._book.problem.payload:
            with open(self._book.problem.payload, "rb") as file:
                runner.ask({"op": "load_live", **shared}, 60, (file.fileno(),))
        else:
            request = {
                "op": "load",
                "source": self._book.reference.source,
                "class_name": "Model",
                "watched": False,
                **shared,
            }
            send_load(runner, request, self._book.reference.init_arguments, self._book.init_seed, 120)

    def deadline(self) -> float:
        """How long the reference itself may reasonably need for a block."""
        return 20 * self._book.call_seconds * self._rotation.count() + 2e-9 * self._book.set_bytes

    def observation(self) -> Observation:
        """Which operators the reference runs."""
        if self._observation is None:
            seeds = (self._book.derive("observe", 0), self._book.derive("observe", 1))
            reply = self.lane("eager").observe(0, seeds)
            self._observation = read_observation(reply, ())
        return self._observation

    def self_deviation(self) -> float:
        """How far eager against itself, in two processes, is from 1 on this machine: a floor for every interval."""
        if self._self_deviation is None:
            least = _LEAST_DEVIATION if self._book.site.apart else 0.0
            self._self_deviation = max(least, self.measure_itself())
        return self._self_deviation

    def measure_itself(self, most_ahead: int | None = None) -> float:
        """Eager against itself: how far from 1, and what it usually takes, with so many calls ahead at most."""
        eager = self.lane("eager")
        duel = self.duel(self.lane("eager twin"), eager, self._timing_seconds, watched=False)
        if isinstance(duel, DeviceDuel):
            duel.most = most_ahead
        with self._book.quiet():
            samples = duel.run()
        self.rest(eager)
        if isinstance(duel, DeviceDuel) and duel.seen is not None:
            self._quiet[duel.baseline.at_a_time] = duel.seen
        if most_ahead is None:
            self._usual_ns["eager"] = statistics.median(samples.baseline)
        self.drop("eager twin")
        return abs(statistics.median(samples.ratios()) - 1.0)

    def _quiet_with(self, at_a_time: int) -> Quiet | None:
        """What is usual with so many calls launched at a time; measured when it is first asked for."""
        if at_a_time not in self._quiet:
            with contextlib.suppress(DeviceMemoryFull, torch.OutOfMemoryError, ProgramError, RunnerLost):
                self.measure_itself(at_a_time)
        return self._quiet.get(at_a_time)

    def _usual_with(self, lane: DeviceLane, at_a_time: int) -> float:
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
            if name not in self._ratios:
                self._ratios[name] = self._measure(name)
        return dict(self._ratios)

    def _measure(self, name: str) -> BaselineTime:
        words = _WORDS[name]
        if name == "tf32" and not self._has_matrix_work():
            return BaselineTime(name, 1.0, "no float32 matrix product in it: the same as eager")
        try:
            other, eager = self.lane(name), self.lane("eager")
            limits = Tolerance(self._book.problem.tolerances, "tf32" if name == "tf32" else "")
            samples = self._duel(other, eager, limits)
            self._usual_ns[name] = statistics.median(samples.candidate)
            self._ratios[name] = BaselineTime(name, statistics.median(samples.ratios()))
            if self._book.site.apart:
                # Its memory is worth more than the moment it takes to make it again.
                self.drop(name)
            return self._ratios[name]
        except ProgramError as error:
            if error.runner is not None and error.runner is self._runner_of("eager"):
                raise
            reason = f"{words} failed: {baseline_words(error)}"
        except WrongOutput as error:
            reason = f"the output of {words} is wrong here: {error}"
        except (RunnerLost, DeviceMemoryFull, torch.OutOfMemoryError) as error:
            lost = error.runner if isinstance(error, RunnerLost) else None
            if lost is not None and lost is self._runner_of("eager"):
                raise
            reason = f"{words}: {error}"
        self.drop(name)
        return BaselineTime(name, None, reason[:500])

    def _runner_of(self, name: str) -> RunnerHandle | None:
        lane = self._lanes.get(name)
        return lane.runner if lane is not None else None

    def _has_matrix_work(self) -> bool:
        names = [operator.name.removeprefix("aten.") for operator in self.observation().operators]
        return any(word in name for name in names for word in _MATRIX_WORK)

    def _duel(self, candidate: Lane, baseline: Lane, limits: Tolerance | None = None) -> Samples:
        with self._book.quiet():
            samples = self.duel(candidate, baseline, self._timing_seconds, limits, watched=False).run()
        self.rest(baseline)
        return samples

    def duel(
        self,
        candidate: Lane,
        baseline: Lane,
        seconds: float,
        limits: Tolerance | None = None,
        every: bool = False,
        watched: bool = True,
    ) -> HostDuel | DeviceDuel | ClaimedDuel:
        """A measurement of one lane against another, as it is made on this device.

        With `limits`, outputs are verified; `every` asks for all of them, `watched` says that nobody trusts it.
        """
        refresh, seeds = self._rotation.refresh, self._rotation.seeds
        verified = OutputCheck(self._book, self._rotation, limits) if limits is not None else None
        if isinstance(candidate, DeviceLane) and isinstance(baseline, DeviceLane):
            duel = DeviceDuel(candidate, baseline, refresh, seconds, seeds, verified, every, bare=watched)
            duel.rest = self._comes_to_rest
            if watched:
                duel.quiet = self._quiet_with
                duel.usual_ns = lambda at_a_time: self._usual_with(baseline, at_a_time)
            return duel
        if isinstance(candidate, HeldLane) and isinstance(baseline, HeldLane):
            return HostDuel(candidate, baseline, refresh, seconds, seeds, verified, every)
        checked = self._checker(limits) if limits is not None else None
        return ClaimedDuel(candidate, baseline, refresh, seconds, seeds, checked, check_all=every, watched=watched)

    def _comes_to_rest(self, seconds: float) -> bool:
        """Whether the device has nothing to do, once what goes on beside is waited for; others on it excuse it."""
        site = self._book.site
        if site.clock.rest(seconds):
            return True
        with site.background.quiet() as rests:
            return not rests or site.clock.rest(seconds) or bool(site.platform.busy_because(site.number))

    def rest(self, lane: Lane) -> None:
        """Let a lane's process give up what it only keeps for later, where memory is short."""
        if self._book.site.is_scarce(self._book.set_bytes):
            lane.release(60.0)

    def _checker(self, limits: Tolerance) -> claimed_duel.Check:
        """Verifies a timed call's output against eager on the very inputs it had."""

        def check(lane: Lane, slot: int, block: Block) -> None:
            if not all(leaf.delivered for leaf in block.outputs[slot].leaves):
                raise WrongOutput("a timed call returned something of another shape or type")
            inputs = self._rotation.content(slot)
            wrong = difference_from_eager(
                self._book,
                self._rotation.arguments(slot, inputs),
                self._rotation.seeds()[slot] or 0,
                self._rotation.distribution(slot),
                lane.slots[slot],
                limits,
            )
            if wrong:
                raise WrongOutput(wrong)
            if not lane.settled(block):
                raise Unsettled
            if not all(map(same_bits, self._rotation.sets().tensors[slot], inputs)):
                raise InputsChanged

        return check

    def forget(self, runner: RunnerHandle | None) -> None:
        """End whichever lane a runner belongs to."""
        for name in [name for name, lane in list(self._lanes.items()) if lane.runner is runner]:
            self.drop(name)

    def drop(self, name: str) -> None:
        """End a lane, for one that is done or no longer answers; it is made again when asked for."""
        lane = self._lanes.pop(name, None)
        if lane is not None:
            lane.runner.kill()

    def close(self) -> None:
        for name in list(self._lanes):
            self.drop(name)


def baseline_words(error: ProgramError | RunnerLost) -> str:
    """What went wrong with a process that runs the reference, in one line."""
    if isinstance(error, RunnerLost):
        return str(error)
    message = without_advice(str(error.report.get("message", ""))).splitlines()
    return f"{error.report.get('type')}: {message[-1] if message else ''}"


class Unsettled(Exception):
    """A slot was written to after the runner had said it was done."""
