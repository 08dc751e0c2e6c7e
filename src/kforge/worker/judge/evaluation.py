"""One candidate before the judge: load, check, observe, time, conclude."""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from kforge.errors import HarnessError
from kforge.platforms.base import Platform
from kforge.profilers._format import size
from kforge.types import Candidate, ErrorNorm, Outcome, Settings, Verdict
from kforge.worker import trees
from kforge.worker.arena import Side, dtype_name
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge import (
    distributions,
    domain,
    emulated_size,
    explain,
    generality,
    hazards,
    integrity,
    interleaved_timer,
    parameters,
    sanitizers,
    static_rules,
    statistics,
)
from kforge.worker.judge.against_eager import difference_from_eager
from kforge.worker.judge.baselines import Unsettled, describe_baseline_error
from kforge.worker.judge.builds import BuildFailed, BuildRefused, Builds
from kforge.worker.judge.compare import Tolerance, same_bits
from kforge.worker.judge.evidence import EvaluationFindings, make_evidence
from kforge.worker.judge.held_lane import NotOwned
from kforge.worker.judge.held_outputs import InputsChanged, WrongOutput
from kforge.worker.judge.lane import InputSets, Lane
from kforge.worker.judge.library_kernels import mark_library_kernels
from kforge.worker.judge.measurement import Measurement
from kforge.worker.judge.problem_cases import Case
from kforge.worker.judge.refusal import Refused, refuse_nonsense
from kforge.worker.judge.rounding_grants import compare_outputs
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.runner_requests import send_load, send_state
from kforge.worker.judge.session import ProblemSession
from kforge.worker.judge.structure import structure_difference
from kforge.worker.judge.time_limit import NoLimit
from kforge.worker.protocol.base import RaisedError
from kforge.worker.protocol.calls import MeasureSavedMemory, RecordedCall
from kforge.worker.protocol.keeper import Ending
from kforge.worker.protocol.program import FinishRunner, ListPatches, LoadProgram
from kforge.worker.protocol.records import HeldTensor, SlotOutput
from kforge.worker.wire import LAZY_VIEW

Progress = Callable[[str], None]
_LETTING_GO_SECONDS = 3.0
_WATCHED_FACTOR, _WATCHED_NOISE_NS = 1.5, 30_000.0
"""A watched call finds caches warm: it takes no longer than a timed one, but for noise."""
_WATCHED_AGAIN = 2
_OF_DIRECTIONS = ("forward: ", "held between ")
"""How the notes begin that an observed call writes: of several, the last one's stand."""


class Evaluation:
    """One candidate's way through the judge: `build` and `prepare`, then either `verdict` or `abandon`, each once."""

    def __init__(
        self,
        session: ProblemSession,
        candidate: Candidate,
        settings: Settings,
        platform: Platform,
        runner_pool: RunnerPool,
        known_folders: tuple[str, ...],
        progress: Progress,
        builds: Builds | None = None,
    ) -> None:
        self._session = session
        self._builds = builds
        self._build = b""
        self._refusal: Refused | None = None
        self._cases = session.cases
        self._timed_inputs = session.timed_inputs
        self._baselines = session.baselines
        self._candidate = candidate
        self._settings = settings
        self._platform = platform
        self._runner_pool = runner_pool
        self._known = known_folders
        self._progress = progress
        self._tolerance = Tolerance(session.cases.problem.tolerances, settings.precision)
        self._findings = EvaluationFindings()
        self._usual_layout = True
        self._runner: RunnerHandle | None = None
        self._close_calls = 0

        if platform.emulated:
            sizes = session.cases.problem.sizes_for(platform.device_class)
            listed = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            self._findings.notes.append(
                f"emulated with {listed}" if listed else "emulated with the problem's own sizes"
            )
            emulated_size.refuse_large(session.cases.problem, platform, session.cases.set_bytes)

    def build(self) -> None:
        """Read the text, and build what takes long to build: what needs no device at all."""
        try:
            self._check_text()
            self._build_apart()
        except Refused as refusal:
            self._refusal = refusal

    def prepare(self) -> None:
        """Load the candidate into a runner: what needs a device, but not for itself alone."""
        if self._refusal is not None:
            return
        try:
            self._load_into_runner()
        except Refused as refusal:
            self._refusal = refusal
            # What it holds is needed by others before its turn comes.
            self.abandon()

    @property
    def is_refused(self) -> bool:
        """Whether there is nothing left to judge."""
        return self._refusal is not None

    def verdict(self) -> Verdict:
        """Check, observe and time what was prepared."""
        outcome, detail, rule = Outcome.CORRECT, "", ""
        try:
            if self._refusal is not None:
                raise self._refusal
            with self._cases.limit_threads():
                self._judge_runner()
        except Refused as refusal:
            outcome, detail, rule = refusal.outcome, refusal.detail, refusal.rule
        finally:
            self.abandon()
        if outcome is not Outcome.CORRECT:
            self._findings.timing = None
            if rule and explain.how_to_comply(rule):
                detail = f"{detail}\nTo comply: {explain.how_to_comply(rule)}."
        else:
            detail = self._summary()
        self._mark("done")
        return Verdict(
            outcome=outcome,
            detail=detail,
            rule=rule,
            errors=tuple(self._findings.errors),
            timing=self._findings.timing,
            custom_share=self._findings.custom_share,
            degenerate=self._cases.degenerate,
            sandbox=self._runner_pool.level,
            emulated=self._platform.emulated,
            notes=tuple(dict.fromkeys(self._findings.notes)),
            hazards=tuple(self._findings.hazards) if outcome is Outcome.CORRECT else (),
            generality=tuple(self._findings.generality) if outcome is Outcome.CORRECT else (),
            domain=self._findings.domain if outcome is Outcome.CORRECT else None,
            evidence=make_evidence(
                self._cases, self._candidate, self._settings, self._runner_pool.level, self._findings
            ),
        )

    # -- before anything runs --------------------------------------------------------------------------------------

    def _check_text(self) -> None:
        source = self._candidate.source
        if not source.strip():
            raise Refused(Outcome.GENERATION_FAILURE, "the candidate is empty")
        problem = static_rules.syntax_error(source)
        if problem:
            raise Refused(Outcome.COMPILATION_FAILURE, f"not valid Python: {problem}")
        if not static_rules.defines_class(source, "ModelNew"):
            others = static_rules.classes(source)
            near = f" (it defines {', '.join(others)})" if others else ""
            raise Refused(Outcome.GENERATION_FAILURE, f"the program does not define a class `ModelNew`{near}")
        builds = static_rules.builds_extension(source) if self._platform.emulated else None
        for finding in [*static_rules.scan(source), *([builds] if builds is not None else [])]:
            raise Refused(Outcome.REJECTED, f"line {finding.line}: {finding.what}", finding.rule)

    # -- with a runner ---------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """End the runner, if there is one."""
        if self._runner is not None:
            self._runner.end()

    def _build_apart(self) -> None:
        self._mark("build")
        if self._builds is not None:
            self._progress("building")
            try:
                self._build = self._builds.archive(self._candidate, self._settings)
            except BuildRefused as error:
                raise Refused(
                    Outcome.REJECTED, str(error), error.rule if error.rule in explain.RULES else "protocol"
                ) from None
            except BuildFailed as error:
                report = RaisedError("RuntimeError", str(error), text=str(error))
                outcome, sentence = explain.program_error("import", report, "")
                raise Refused(outcome, sentence) from None

    def _load_into_runner(self) -> None:
        self._mark("start")
        self._runner = runner = self._runner_pool.spawn_bounded(self._settings.limits, self._cases.set_bytes)
        self._progress("building")
        with self._explain_failures(runner, "load"):
            self._load(runner)
        device = self._cases.device
        held, all_of_it = self._platform.held_bytes(device.number, runner.pid), device.memory_bytes
        if held > all_of_it // 2:
            message = f"it holds {held >> 30} GiB of the device's {all_of_it >> 30} before its first call"
            raise Refused(Outcome.RUNTIME_ERROR, message)
        self._mark("wait")

    def _judge_runner(self) -> None:
        runner = self._runner
        assert runner is not None
        self._mark("prepare")
        if self._cases.keeps_cases(self._settings.seeds):
            next(self._cases.cases_to_check(self._settings.seeds))
        self._mark("check")
        with self._explain_failures(runner, "a checked call"):
            for number, case in enumerate(self._cases.cases_to_check(self._settings.seeds)):
                self._progress(f"checking {number + 1} of {self._settings.seeds}: {case.distribution}")
                self._check(runner, case, number, closely=self._platform.emulated and number == 0)
                del case
        # Now others need the device's memory.
        self._cases.device.give_back_all(self._cases.set_bytes)
        self._mark("observe")
        self._run_beside_baselines(runner, "an observed call", self._observe)
        self._mark("time")
        if self._settings.timing_seconds > 0 and self._platform.can_time:
            self._run_beside_baselines(runner, "a timed call", self._time)
            self._compare_watched(runner)
        self._mark("end")
        with self._explain_failures(runner, "its end"):
            self._refuse_patches(runner.ask(ListPatches(), 30.0).patched)
            self._refuse_findings(runner)
        self._try_misuse(runner)
        self._finish(runner)
        self._mark("limit")
        self._find_limit()
        if self._settings.sanitize:
            self._mark("sanitize")
            self._sanitize()

    def _run_beside_baselines(self, runner: RunnerHandle, phase: str, work: Callable[[RunnerHandle], None]) -> None:
        """Do work in which the reference's own processes take part; one of those may fail once, at nobody's cost."""
        for attempt in (1, 2):
            try:
                with self._explain_failures(runner, phase):
                    work(runner)
                return
            except (RunnerLost, ProgramError) as error:
                # Not the candidate's: `_explain_failures` lets only those through.
                self._baselines.forget(error.runner)
                self._cases.device.give_back_all(self._cases.set_bytes)
                if isinstance(error, ProgramError):
                    self._timed_inputs.keep_to_what_is_given()
                if attempt == 2:
                    self._refuse_hoarder(runner, phase)
                    raise HarnessError(
                        f"the reference cannot be run beside the candidate: {describe_baseline_error(error)}"
                    ) from None

    @contextlib.contextmanager
    def _explain_failures(self, runner: RunnerHandle, phase: str) -> Iterator[None]:
        """Turn whatever goes wrong with the runner into a refusal with a sentence."""
        try:
            yield
        except RunnerLost as error:
            if error.runner is not None and error.runner is not runner:
                raise
            if error.kind in ("timeout", "memory"):
                runner.kill()
            ending = runner.end()
            self._refuse_findings(runner)
            outcome, rule, sentence = explain.lost_runner(
                phase, error, ending, emulated_size.size_advice(self._cases.problem, self._platform)
            )
            raise Refused(outcome, sentence + explain.printed_tail(ending), rule) from None
        except ProgramError as error:
            if error.runner is not None and error.runner is not runner:
                raise
            ending = runner.end()
            self._refuse_findings(runner)
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
            self._refuse_hoarder(runner, phase)
            raise

    def _refuse_hoarder(self, runner: RunnerHandle, phase: str) -> None:
        """Refuse a candidate that held the device's memory, where somebody found too little of it."""
        if not self._cases.device.has_own_memory:
            return
        held = self._kill_and_count_freed(runner)
        if held > self._cases.device.memory_bytes // 4:
            message = f"it held {held >> 30} GiB of the device's memory during {phase}, and left too little for others"
            raise Refused(Outcome.RUNTIME_ERROR, message) from None

    def _kill_and_count_freed(self, runner: RunnerHandle) -> int:
        """End the runner: the bytes that are free on the device once it is gone, and were not before."""
        before = self._cases.device.free_bytes()
        runner.kill()
        deadline = time.monotonic() + _LETTING_GO_SECONDS
        gained = 0
        while time.monotonic() < deadline and gained <= self._cases.device.memory_bytes // 4:
            time.sleep(0.1)
            gained = self._cases.device.free_bytes() - before
        return gained

    def _refuse_findings(self, runner: RunnerHandle) -> None:
        for rule, what in runner.findings:
            raise Refused(Outcome.REJECTED, what, rule if rule in explain.RULES else "protocol") from None

    def _load(self, runner: RunnerHandle) -> None:
        reference = self._cases.reference
        request = LoadProgram(
            source=self._candidate.source,
            class_name="ModelNew",
            watched=True,
            training=reference.training,
            dtype=self._cases.problem.form.dtype,
            gradients=reference.gradient_names,
        )
        seconds = self._settings.limits.build_seconds
        loaded = send_load(
            runner, request, self._cases.reference.init_arguments, self._cases.init_seed, seconds, self._build
        )
        self._refuse_patches(loaded.patched)
        self._refuse_findings(runner)
        with refuse_nonsense():
            parameters.check_held_tensors(loaded.state)
        self._findings.layouts = domain.read_layouts(loaded.layouts)
        self._findings.matches, lost = parameters.match(self._cases.initial_state, loaded.state)
        must_follow = [name for name in lost if name in self._cases.reference.movable_names()]
        if must_follow:
            names = ", ".join(f"`{name}` {tuple(self._cases.initial_state[name].shape)}" for name in must_follow)
            raise Refused(
                Outcome.MISMATCH,
                f"the module does not hold the reference's {names}: nothing in ModelNew has that name and shape, or "
                "was initialised with the same values. Register each under exactly this name, as an nn.Parameter or a "
                "buffer, so that new values can be loaded",
            )
        self._refuse_missing_parameters(loaded.state)
        self._findings.notes += [
            f"buffer {name} of the reference has no counterpart in the candidate" for name in lost if name[0] != "="
        ]

    def _refuse_missing_parameters(self, held: list[HeldTensor]) -> None:
        """Refuse a module that cannot be trained in the reference's place: by its optimiser, from its checkpoints."""
        shapes = {item.name: item.shape for item in held if item.kind == "parameter"}
        for name in self._cases.reference.gradient_names or ():
            wanted = tuple(self._cases.initial_state[name].shape)
            if shapes.get(name) != wanted:
                raise Refused(
                    Outcome.MISMATCH,
                    f"gradients are asked for, and the module has no parameter `{name}` of shape {wanted}: hold each "
                    "of the reference's parameters as an nn.Parameter of the same name and shape, so that optimisers "
                    "and checkpoints find it",
                )

    def _refuse_patches(self, patched: list[str]) -> None:
        if patched:
            raise Refused(Outcome.REJECTED, f"it replaced {', '.join(patched[:5])}", "patched_torch")

    def _send_state(self, runner: RunnerHandle, state: dict[str, torch.Tensor]) -> None:
        if not self._findings.matches:
            return
        send_state(runner, [(match.name, match.value(state)) for match in self._findings.matches], self._seconds())

    def _seconds(self) -> float:
        return self._settings.limits.call_seconds + self._baselines.deadline()

    # -- correctness -----------------------------------------------------------------------------------------------

    def _check(self, runner: RunnerHandle, case: Case, number: int, closely: bool) -> None:
        """Call the candidate on one case: once with fresh memory poisoned, and by chance once more without."""
        self._send_state(runner, case.state)
        guarded: Side | None = None
        if not self._cases.device.has_own_memory and not self._platform.emulated:
            guarded = "start" if number % 2 else "end"
        with contextlib.closing(InputSets([case.arguments], self._cases.device, guarded=guarded)) as sets:
            try:
                self._check_calls(runner, case, sets, closely)
            except RunnerLost as error:
                if error.kind == "ended":
                    self._refuse_fault(runner, sets)
                raise

    def _refuse_fault(self, runner: RunnerHandle, sets: InputSets) -> None:
        """Refuse a candidate whose process was ended by an access to a guard around its inputs."""
        ending = runner.end()
        place = sets.place_of_fault(ending.fault) if ending.fault is not None else ""
        if place:
            self._refuse_findings(runner)
            what = f"it read or wrote memory {place}, and was killed by SIGSEGV during a checked call"
            raise Refused(Outcome.REJECTED, what + explain.printed_tail(ending), "out_of_bounds") from None

    def _check_calls(self, runner: RunnerHandle, case: Case, sets: InputSets, closely: bool) -> None:
        lane = Lane(runner, sets, self._cases.outputs, self._seconds())
        scarce = self._cases.device.is_scarce(self._cases.set_bytes)
        ways = [[True]] if scarce else [[True], [True, False], [False, True]]
        for poison in random.SystemRandom().choice(ways):
            block = lane.call([(0, 0, case.seed)], poison=poison, checked=closely, poison_heap=True)
            self._refuse_findings(runner)
            self._check_structure(block.outputs[0], case)
            self._compare(lane, case)
            self._close_calls += closely
            self._check_inputs(sets, case)
            if block.shared and not self._cases.shares_memory:
                what = "an output lies in memory of an input, a parameter or another output; it must have its own"
                raise Refused(Outcome.REJECTED, what, "output_type")
            if not lane.sample_is_settled(block):
                raise Unsettled
            for slot in lane.slots[0]:
                slot.zero_()
            self._cases.device.synchronize()

    def _check_structure(self, output: SlotOutput, case: Case) -> None:
        with refuse_nonsense():
            difference = structure_difference(case.expected.tree, output.tree)
        if difference:
            raise Refused(Outcome.MISMATCH, f"{difference} (distribution {case.distribution})")
        if len(output.leaves) != len(case.expected.outputs):
            raise Refused(
                Outcome.MISMATCH, f"{len(output.leaves)} tensors returned, {len(case.expected.outputs)} expected"
            )
        for number, (leaf, expected) in enumerate(zip(output.leaves, case.expected.outputs, strict=True)):
            name = self._cases.output_names[number]
            self._usual_layout = self._usual_layout and leaf.usual_layout
            if leaf.kind == LAZY_VIEW and not self._cases.lazy_output:
                raise Refused(Outcome.REJECTED, f"{name} is a view that leaves work to its reader", "output_type")
            if leaf.kind not in ("Tensor", "Parameter", LAZY_VIEW):
                raise Refused(Outcome.REJECTED, f"{name} is a {leaf.kind}, a subclass of torch.Tensor", "output_type")
            if leaf.shape != tuple(expected.shape):
                raise Refused(Outcome.MISMATCH, f"{name} has shape {leaf.shape}, expected {tuple(expected.shape)}")
            if leaf.dtype != dtype_name(expected.dtype):
                raise Refused(Outcome.MISMATCH, f"{name} has dtype {leaf.dtype}, expected {dtype_name(expected.dtype)}")
            wanted = self._platform.hardware().device if self._platform.emulated else self._platform.device
            if not leaf.device.startswith(wanted):
                raise Refused(Outcome.MISMATCH, f"{name} is on device {leaf.device}, expected {wanted}")
            if not leaf.delivered:
                raise Refused(Outcome.MISMATCH, f"{name} could not be read (layout or storage is not an ordinary one)")

    def _compare(self, lane: Lane, case: Case) -> None:
        norms = []
        for difference in compare_outputs(
            self._cases, case.expected, case.arguments, case.state, case.seed, lane.slots[0], self._tolerance
        ):
            norms.append(ErrorNorm(case.distribution, difference.norm, difference.norm_limit, difference.worst))
            if difference.message:
                where = f"inputs: {self._describe_distribution(case)}"
                if case.state is not self._cases.initial_state and self._findings.matches:
                    where += "; parameters: re-randomised, so a kernel must read them on every call"
                self._findings.errors.append(norms[-1])
                raise Refused(Outcome.MISMATCH, f"{difference.message}\n  ({where})")
        worst = max(norms, key=lambda item: item.norm, default=ErrorNorm(case.distribution, 0.0, 0.0, 0.0))
        self._findings.errors.append(worst)

    def _describe_distribution(self, case: Case) -> str:
        if case.distribution != distributions.EXTREMES:
            return _DISTRIBUTION_DESCRIPTIONS[case.distribution]
        return self._cases.extremes[0].description()

    def _check_inputs(self, sets: InputSets, case: Case) -> None:
        for number, (seen, given) in enumerate(zip(sets.tensors[0], trees.pack(case.arguments)[1], strict=True)):
            if not same_bits(seen, given):
                raise Refused(Outcome.REJECTED, f"forward changed its input {number} in place", "input_modified")
        place = sets.place_written()
        if place:
            raise Refused(Outcome.REJECTED, f"it wrote {place}", "out_of_bounds")

    # -- whose work is it ------------------------------------------------------------------------------------------

    def _observe(self, runner: RunnerHandle) -> None:
        """Observe which operators run, what native code is there, and what share of the time is the candidate's own.

        The observed call has other inputs than the ones before it, so that every result of it is a change.
        """
        self._send_state(runner, self._cases.timed_state)
        with contextlib.closing(self._timed_inputs.watched_sets()) as sets:
            lane = Lane(runner, sets, self._cases.outputs, self._seconds())
            seeds = [self._cases.derive("watched call", number) for number in range(5)]
            times = [lane.call([(0, 0, seed)]).ns[0] for seed in seeds[:3]]
            number = len(sets.tensors) - 1
            on_device = self._platform.records_kernels
            backward = self._cases.reference.backward and not self._platform.emulated
            other = self._timed_inputs.watched_arguments(number + 1) if on_device else None
            renew = functools.partial(sets.write, number, other) if other is not None else None
            watched, recorded = lane.observe(number, (seeds[3], seeds[4]), renew)
            self._refuse_findings(runner)
            if other is not None:
                self._check_recorded_call(lane, recorded, number, other, seeds[4])
            saved = runner.ask(MeasureSavedMemory(number, seeds[3]), self._seconds()).saved_bytes if backward else 0
        native = () if on_device else integrity.own_native_code(runner.native_code(), self._known)
        brought = integrity.foreign_native_code(native) if self._platform.emulated else ()
        if brought:
            what = f"it runs native code of its own beside the emulator's kernels: {', '.join(brought[:3])}"
            raise Refused(Outcome.REJECTED, what, "foreign_code")
        with refuse_nonsense():
            self._findings.observed = integrity.read_observation(
                watched, recorded, native, on_device, self._platform.notes_launches
            )
        if on_device:
            loaded = tuple(path for path in runner.native_code() if path.startswith(self._known))
            usual = self._baselines.lane("eager").runner.native_code()
            self._findings.observed = mark_library_kernels(self._findings.observed, loaded, usual)
        self._findings.custom_share = integrity.custom_share(self._findings.observed, float(min(times)))
        if backward:
            self._note_directions(self._findings.observed, saved)
        rule, what = integrity.judge_work(self._findings.observed, self._baselines.observation(), self._settings.policy)
        if rule:
            raise Refused(Outcome.REJECTED, what, rule)

    def _note_directions(self, observed: integrity.Observation, saved: int) -> None:
        """Note whose work forward and backward were, and what memory is held between them."""
        self._findings.notes = [note for note in self._findings.notes if not note.startswith(_OF_DIRECTIONS)]
        parts = integrity.describe_directions(observed)
        own_memory = self._cases.device.has_own_memory
        how = "device memory allocated by forward, the output's included" if own_memory else "what autograd saved"
        ours, theirs = size(saved), size(self._baselines.saved_bytes())
        held = f"held between forward and backward: {ours}, eager {theirs} ({how})"
        self._findings.notes += [parts, held] if parts else [held]

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

    def _time(self, runner: RunnerHandle) -> None:
        measurement = Measurement(
            self._session, self._settings, self._tolerance, self._findings, self._refuse_findings, self._known
        )
        self._findings.timing = measurement.take(runner, self._seconds(), self._usual_layout, self._progress)

    def _compare_watched(self, runner: RunnerHandle) -> None:
        """Refuse other work when watched than when timed: it shows in the time on the device."""
        timed = self._findings.timing
        if timed is None or not self._cases.device.has_own_memory or self._settings.policy == "any":
            return
        usual = statistics.median(list(timed.candidate_ns))
        for _ in range(_WATCHED_AGAIN):
            if not self._watched_takes_longer(usual):
                return
            # Once more: one call may have been disturbed.
            self._run_beside_baselines(runner, "an observed call", self._observe)
        if not self._watched_takes_longer(usual):
            return
        watched = self._findings.observed.busy_ns if self._findings.observed is not None else 0
        what = f"its kernels take {watched / 1e3:.0f} µs when they are watched, and {usual / 1e3:.0f} µs when timed"
        if not self._platform.busy_because(self._cases.device.number):
            raise Refused(Outcome.REJECTED, what, "decorative_kernel")
        self._findings.notes.append(f"{what}, beside others on the device: measure again when nobody else uses it")

    def _watched_takes_longer(self, usual: float) -> bool:
        observed = self._findings.observed
        return observed is not None and observed.busy_ns > _WATCHED_FACTOR * usual + _WATCHED_NOISE_NS

    def _find_limit(self) -> None:
        """Put beside the time the least one that the machine allows, where that can be had; the candidate is gone."""
        timing = self._findings.timing
        if timing is None:
            return
        try:
            limit = self._session.time_limits.find(timing, self._settings.precision)
        except NoLimit as reason:
            self._findings.notes += [f"no score: {reason}"] if str(reason) else []
        else:
            self._findings.timing = replace(timing, limit=limit)

    def _sanitize(self) -> None:
        """Run the platform's checkers on a program that is right otherwise."""
        self._progress("looking for memory faults and races")
        try:
            clean, unused = sanitizers.sanitize(
                self._session, self._candidate, self._settings, self._platform, self._runner_pool, self._build
            )
        except sanitizers.Fault as error:
            raise Refused(Outcome.REJECTED, str(error), "sanitizer") from None
        self._findings.sanitized = tuple(clean)
        self._findings.notes += [f"not checked by {reason}" for reason in unused]

    # -- the end ---------------------------------------------------------------------------------------------------

    def _try_misuse(self, runner: RunnerHandle) -> None:
        """Note how the program behaves outside of what it was verified for: no part of the outcome. It may crash."""
        self._progress("trying calls it was not made for")
        at_last = self._findings.layouts
        if hazards.can_be_tried(self._cases):
            trial = hazards.HazardTrial(runner, self._cases, self._findings.matches, self._seconds())
            try:
                self._send_state(runner, self._cases.timed_state)
                self._findings.hazards += trial.hazards()
                if trial.is_alive and not self._cases.reference.backward:
                    self._try_other_inputs(runner)
            except (RunnerLost, ProgramError):
                self._findings.notes.append("what it does outside of what was verified could not be tried")
            at_last = trial.layouts or at_last
        else:
            self._findings.notes.append("too large to try what it does outside of what was verified")
        self._findings.domain = domain.make_domain(self._cases, self._findings.layouts, at_last)

    def _try_other_inputs(self, runner: RunnerHandle) -> None:
        """Note whether the program is right for inputs of other sizes and in another layout."""
        trial = generality.GeneralityTrial(runner, self._cases, self._seconds())
        trial.run()
        self._findings.generality += trial.lines
        self._findings.hazards += trial.hazards

    def _finish(self, runner: RunnerHandle) -> None:
        with contextlib.suppress(RunnerLost, ProgramError):
            runner.ask(FinishRunner(), 30.0)
        ending = runner.end()
        self._note_ending(ending)
        if ending.left:
            names = ", ".join(ending.left[:5])
            raise Refused(Outcome.REJECTED, f"it left processes running: {names}", "left_processes")

    def _note_ending(self, ending: Ending) -> None:
        if ending.printed > len(ending.output.encode()):
            self._findings.notes.append(f"it printed {ending.printed} bytes; the first {len(ending.output)} were kept")

    def _summary(self) -> str:
        calls = len(self._findings.errors)
        checked = f"{calls} checked calls agree with the reference"
        if self._platform.emulated:
            first = f"the first {self._close_calls} of them" if self._close_calls > 1 else "the first of them"
            closely = first if self._close_calls < calls else "all of them" if calls > 1 else "it"
            checked = f"{calls} calls agree with the reference, {closely} in the emulator's checked mode"
        timed = self._findings.timing
        if timed is None and self._platform.emulated:
            return f"{checked}; emulated, so not timed"
        if timed is None:
            return f"{checked}; not timed"
        low, high = timed.interval
        contended = ", contended" if timed.contended else ""
        return f"{checked}; {timed.speedup:.2f}x against {timed.baseline} ({low:.2f} to {high:.2f}{contended})"

    def _mark(self, name: str) -> None:
        self._findings.marks.append((name, time.perf_counter()))


_DISTRIBUTION_DESCRIPTIONS = {
    "natural": "as the problem gives them",
    "scaled": "the problem's, times 3",
    "small": "the problem's, times 0.01",
    "negated": "the problem's, negated",
    "shifted": "the problem's, plus 0.5",
}
