"""A candidate on one workload of a problem: checked, observed and timed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kforge.errors import HarnessError
from kforge.platforms.base import Platform
from kforge.profilers._format import size
from kforge.types import Outcome, Settings
from kforge.worker.judge import integrity, statistics
from kforge.worker.judge.against_eager import difference_from_eager
from kforge.worker.judge.baselines import describe_baseline_error
from kforge.worker.judge.candidate_module import CandidateModule
from kforge.worker.judge.case_checks import CaseChecks
from kforge.worker.judge.compare import Tolerance
from kforge.worker.judge.evidence import WorkloadFindings
from kforge.worker.judge.lane import Lane
from kforge.worker.judge.library_kernels import mark_library_kernels
from kforge.worker.judge.measurement import Measurement
from kforge.worker.judge.refusal import Refused, refuse_nonsense
from kforge.worker.judge.runner_failures import RunnerFailures, refuse_findings
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.judge.session import WorkloadSession
from kforge.worker.judge.time_limit import NoLimit
from kforge.worker.protocol.calls import MeasureSavedMemory, RecordedCall

_WATCHED_FACTOR, _WATCHED_NOISE_NS = 1.5, 30_000.0
"""A watched call finds caches warm: it takes no longer than a timed one, but for noise."""
_WATCHED_AGAIN = 2
_OF_DIRECTIONS = ("forward: ", "held between ")
"""How the notes begin that an observed call writes: of several, the last one's stand."""


class WorkloadTrial:
    """Tries a candidate's module on one workload; what it finds is kept, also where it ends in a refusal."""

    def __init__(
        self,
        session: WorkloadSession,
        runner: RunnerHandle,
        module: CandidateModule,
        settings: Settings,
        platform: Platform,
        known_folders: tuple[str, ...],
        progress: Callable[[str], None],
        compile_seconds: float = 0.0,
    ) -> None:
        """`settings` are this workload's: its share of the time and of the seeds. `compile_seconds` is what the first
        call may take on top.
        """
        self._session = session
        self._cases = session.cases
        self._timed_inputs = session.timed_inputs
        self._baselines = session.baselines
        self._runner = runner
        self._module = module
        self._settings = settings
        self._platform = platform
        self._known = known_folders
        self._progress = progress
        self._tolerance = Tolerance(session.cases.problem.tolerances, settings.precision)
        self._failures = RunnerFailures(session.cases, platform)
        self.findings = WorkloadFindings()
        self.fallback: Refused | None = None
        """Why it would be refused, where it leaves this workload to torch, as it may do with some of several."""
        self.checks = CaseChecks(
            runner,
            module,
            session.cases,
            platform,
            self._tolerance,
            self.seconds,
            session.workload_name,
            compile_seconds,
        )

    @property
    def seconds(self) -> float:
        """How long a request to the runner may take."""
        return self._settings.limits.call_seconds + self._baselines.deadline()

    # -- correctness -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Call the candidate on freshly drawn cases; Refused where a result is wrong."""
        seeds = self._settings.seeds
        if self._cases.keeps_cases(seeds):
            next(self._cases.cases_to_check(seeds))
        with self._failures.explain(self._runner, "a checked call"):
            for number, case in enumerate(self._cases.cases_to_check(seeds)):
                self._progress(f"checking {number + 1} of {seeds}: {case.distribution}")
                self.checks.check(case, number)
                del case
        # Now others need the device's memory.
        self._cases.give_back_all()

    # -- whose work is it ------------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Find out whose work a call is; Refused where the policy does not allow it."""
        with self._cases.device.background.calm():
            self._run_beside_baselines("an observed call", self._observe)

    def _observe(self) -> None:
        """Observe which operators run, what native code is there, and what share of the time is the candidate's own.

        The observed call has other inputs than the ones before it, so that every result of it is a change.
        """
        self._module.send_state(self._cases.timed_state, self.seconds)
        with contextlib.closing(self._timed_inputs.watched_sets()) as sets:
            lane = Lane(self._runner, sets, self._cases.outputs, self.seconds)
            seeds = [self._cases.derive("watched call", number) for number in range(5)]
            times = [lane.call([(0, 0, seed)]).ns[0] for seed in seeds[:3]]
            number = len(sets.tensors) - 1
            on_device = self._platform.records_kernels
            backward = self._cases.reference.backward and not self._platform.emulated
            other = self._timed_inputs.watched_arguments(number + 1) if on_device else None
            renew = functools.partial(sets.write, number, other) if other is not None else None
            watched, recorded = lane.observe(number, (seeds[3], seeds[4]), renew)
            refuse_findings(self._runner)
            if other is not None:
                self._check_recorded_call(lane, recorded, number, other, seeds[4])
            saved = self._runner.ask(MeasureSavedMemory(number, seeds[3]), self.seconds).saved_bytes if backward else 0
        native = () if on_device else integrity.own_native_code(self._runner.native_code(), self._known)
        brought = integrity.foreign_native_code(native) if self._platform.emulated else ()
        if brought:
            what = f"it runs native code of its own beside the emulator's kernels: {', '.join(brought[:3])}"
            raise Refused(Outcome.REJECTED, what, "foreign_code")
        with refuse_nonsense():
            self.findings.observed = integrity.read_observation(
                watched, recorded, native, on_device, self._platform.notes_launches
            )
        if on_device:
            loaded = tuple(path for path in self._runner.native_code() if path.startswith(self._known))
            usual = self._baselines.lane("eager").runner.native_code()
            self.findings.observed = mark_library_kernels(self.findings.observed, loaded, usual)
        self.findings.custom_share = integrity.custom_share(self.findings.observed, float(min(times)))
        if backward:
            self._note_directions(self.findings.observed, saved)
        rule, what = integrity.judge_work(self.findings.observed, self._baselines.observation(), self._settings.policy)
        refusal = Refused(Outcome.REJECTED, what, rule) if rule else None
        may_fall_back = self._session.workload_name and self._settings.policy == "hybrid"
        self.fallback = refusal if may_fall_back and integrity.is_fallback(self.findings.observed, rule) else None
        if refusal is not None and self.fallback is None:
            raise refusal

    def _note_directions(self, observed: integrity.Observation, saved: int) -> None:
        """Note whose work forward and backward were, and what memory is held between them."""
        self.findings.notes = [note for note in self.findings.notes if not note.startswith(_OF_DIRECTIONS)]
        parts = integrity.describe_directions(observed)
        own_memory = self._cases.device.has_own_memory
        how = "device memory allocated by forward, the output's included" if own_memory else "what autograd saved"
        ours, theirs = size(saved), size(self._baselines.saved_bytes())
        held = f"held between forward and backward: {ours}, eager {theirs} ({how})"
        self.findings.notes += [parts, held] if parts else [held]

    def _check_recorded_call(
        self, lane: Lane, recorded: RecordedCall, number: int, arguments: list[Any], seed: int
    ) -> None:
        """Check that a call whose kernels were recorded gives what any gives: who does less there shows nothing."""
        leaves = recorded.output.leaves if recorded.output is not None else ()
        if len(leaves) != len(self._cases.outputs) or not all(leaf.delivered for leaf in leaves):
            raise Refused(Outcome.MISMATCH, "a call that was recorded returned something of another shape or type")
        wrong = difference_from_eager(self._cases, arguments, seed, "natural", lane.slots[number], self._tolerance)
        if wrong:
            raise Refused(Outcome.MISMATCH, f"a call that was recorded gave a wrong result: {wrong}")

    # -- timing ----------------------------------------------------------------------------------------------------

    def time(self) -> None:
        """Time the candidate, where that is asked for; Refused where its time cannot be believed."""
        if self._settings.timing_seconds > 0 and self._platform.can_time:
            with self._cases.device.background.calm():
                self._run_beside_baselines("a timed call", self._time)
                self._compare_watched()

    def _time(self) -> None:
        if self._session.workload_name:
            # Another workload was the last.
            self._module.send_state(self._cases.timed_state, self.seconds)
        self._timed_inputs.leave_out_special(self.checks.carries_nan)
        measurement = Measurement(
            self._session, self._settings, self._tolerance, self.findings, refuse_findings, self._known
        )
        self.findings.timing = measurement.take(self._runner, self.seconds, self.checks.usual_layout, self._progress)

    def _compare_watched(self) -> None:
        """Refuse other work when watched than when timed: it shows in the time on the device."""
        timed = self.findings.timing
        if timed is None or not self._cases.device.has_own_memory or self._settings.policy == "any":
            return
        usual = statistics.median(list(timed.candidate_ns))
        for _ in range(_WATCHED_AGAIN):
            if not self._watched_takes_longer(usual):
                return
            # Once more: one call may have been disturbed.
            self._run_beside_baselines("an observed call", self._observe)
        if not self._watched_takes_longer(usual):
            return
        watched = self.findings.observed.busy_ns if self.findings.observed is not None else 0
        what = f"its kernels take {watched / 1e3:.0f} µs when they are watched, and {usual / 1e3:.0f} µs when timed"
        if not self._platform.busy_because(self._cases.device.number):
            raise Refused(Outcome.REJECTED, what, "decorative_kernel")
        self.findings.notes.append(f"{what}, beside others on the device: measure again when nobody else uses it")

    def _watched_takes_longer(self, usual: float) -> bool:
        observed = self.findings.observed
        return observed is not None and observed.busy_ns > _WATCHED_FACTOR * usual + _WATCHED_NOISE_NS

    def find_limit(self) -> None:
        """Put beside the time the least one that the machine allows, where that can be had; the candidate is gone."""
        timing = self.findings.timing
        if timing is None:
            return
        try:
            limit = self._session.time_limits.find(timing, self._settings.precision)
        except NoLimit as reason:
            self.findings.notes += [f"no score: {reason}"] if str(reason) else []
        else:
            self.findings.timing = replace(timing, limit=limit)

    def _run_beside_baselines(self, phase: str, work: Callable[[], None]) -> None:
        """Do work in which the reference's own processes take part; one of those may fail once, at nobody's cost."""
        for attempt in (1, 2):
            try:
                with self._failures.explain(self._runner, phase):
                    work()
                return
            except (RunnerLost, ProgramError) as error:
                # Not the candidate's: `explain` lets only those through.
                self._baselines.forget(error.runner)
                self._cases.give_back_all()
                if isinstance(error, ProgramError):
                    self._timed_inputs.keep_to_what_is_given()
                if attempt == 2:
                    self._failures.refuse_hoarder(self._runner, phase)
                    raise HarnessError(
                        f"the reference cannot be run beside the candidate: {describe_baseline_error(error)}"
                    ) from None
