"""One candidate before the judge: load, check, observe, time, conclude."""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator

import torch

from kforge.platforms.base import Platform
from kforge.types import Candidate, ErrorNorm, Outcome, Settings, TensorLayout, Verdict, WorkloadResult
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge import (
    domain,
    emulated_size,
    explain,
    sanitizers,
    static_rules,
)
from kforge.worker.judge.builds import BuildFailed, BuildRefused, Builds
from kforge.worker.judge.candidate_module import CandidateModule
from kforge.worker.judge.case_checks import CaseChecks
from kforge.worker.judge.compare import Tolerance
from kforge.worker.judge.evidence import EvaluationFindings, make_evidence
from kforge.worker.judge.held_out_sizes import SEEDS, HeldOutSize
from kforge.worker.judge.misuse import MisuseTrial
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.refusal import Refused
from kforge.worker.judge.runner_failures import RunnerFailures, refuse_findings, refuse_patches
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.runner_requests import receive_build
from kforge.worker.judge.session import ProblemSession
from kforge.worker.judge.workload_mean import mean_timing
from kforge.worker.judge.workload_trial import WorkloadTrial
from kforge.worker.protocol.base import RaisedError
from kforge.worker.protocol.keeper import Ending
from kforge.worker.protocol.program import FinishRunner, ListPatches

Progress = Callable[[str], None]
Beside = Callable[[], contextlib.AbstractContextManager[None]]
"""Others have the device in it."""

_CARRIES_NAN = (
    "a NaN in its inputs reaches outputs that the reference keeps finite, as Strassen's algorithm carries it; without "
    "one it is right at every edge"
)


_COMPILES_IN_CALLS = re.compile(r"\btriton\b")
_TUNES_ITSELF = re.compile(r"\bautotune\b")
"""Beside other programs it would choose what suits their company."""
_MOST_COMPILED = 64 << 20
_TOO_LITTLE_MEMORY = (DeviceMemoryFull, torch.OutOfMemoryError)


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
        beside: Beside | None = None,
    ) -> None:
        """`beside`: where given, the device is lent to others in it, for what needs none for itself."""
        self._session = session
        self._beside = beside
        self._builds = builds
        self._build = b""
        self._refusal: Refused | None = None
        self._cases = session.cases
        self._candidate = candidate
        self._settings = settings
        self._platform = platform
        self._runner_pool = runner_pool
        self._known = known_folders
        self._progress = progress
        self._failures = RunnerFailures(session.cases, platform)
        self._findings = EvaluationFindings()
        self._runner: RunnerHandle | None = None
        self._modules: list[tuple[ProblemCases, CandidateModule]] = []
        """In the order of their construction, each with the first cases that it is for."""
        self._in_use = 0
        """Which of them the runner calls."""
        self._trials: list[WorkloadTrial] = []
        self._held_out_errors: list[ErrorNorm] = []
        self._held_out_carries_nan = False
        compiles_in_calls = _COMPILES_IN_CALLS.search(candidate.source) is not None
        self._compile_seconds = settings.limits.build_seconds if compiles_in_calls else 0.0
        """What the first call of each size may take on top, where the candidate compiles in it."""
        self._tunes_itself = compiles_in_calls and _TUNES_ITSELF.search(candidate.source) is not None
        self.compiled = b""
        """What the candidate compiled in its calls, as an archive; empty where no profiler wants it."""

        for workload in session.workloads if platform.emulated else ():
            problem = workload.cases.problem
            sizes = problem.sizes_for(platform.device_class)
            listed = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            self._findings.notes.append(
                f"emulated with {listed}" if listed else "emulated with the problem's own sizes"
            )
            emulated_size.refuse_large(problem, platform, workload.cases.set_bytes)

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
            if self._tunes_itself:
                self._compile_elsewhere()
                self._load_into_runner()
            else:
                self._load_into_runner()
                self._compile_in_first_call()
            self._mark("wait")
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
                runner = self._judge_runner()
                misuse = self._prepare_misuse(runner)
            with self._lent() if misuse.makes_calls else contextlib.nullcontext():
                misuse.run()
                left = self._finish(runner)
                self._mark("wait")
            with self._cases.limit_threads():
                self._mark("end")
                self._take_misuse(misuse)
                self._conclude(left)
        except Refused as refusal:
            outcome, detail, rule = refusal.outcome, refusal.detail, refusal.rule
        finally:
            self.abandon()
        self._gather()
        correct = outcome is Outcome.CORRECT
        if not correct:
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
            workloads=self._workload_results() if correct else (),
            custom_share=self._custom_share(),
            degenerate=self._session.degenerate,
            sandbox=self._runner_pool.level,
            emulated=self._platform.emulated,
            notes=tuple(dict.fromkeys(self._findings.notes)),
            hazards=tuple(self._findings.hazards) if correct else (),
            generality=tuple(self._findings.generality) if correct else (),
            domain=self._findings.domain if correct else None,
            evidence=make_evidence(
                self._session, self._candidate, self._settings, self._runner_pool.level, self._findings
            ),
        )

    def _custom_share(self) -> float | None:
        """The candidate's own share, the weighted mean over workloads; None where it was not observed on all."""
        pairs = list(zip(self._session.workloads, self._trials, strict=False))
        shares = [(each.weight, share) for each, trial in pairs if (share := trial.findings.custom_share) is not None]
        whole = len(shares) == len(self._session.workloads)
        return sum(weight * share for weight, share in shares) if whole else None

    def _gather(self) -> None:
        """Put together what was found on each workload; a note says of which, where there are several."""
        findings = self._findings
        for workload, trial in zip(self._session.workloads, self._trials, strict=False):
            name = workload.workload_name
            findings.errors += trial.checks.errors
            findings.notes += [f"{name}: {note}" if name else note for note in trial.findings.notes]
            findings.observed += [trial.findings.observed] if trial.findings.observed is not None else []
        findings.errors += self._held_out_errors
        if self._held_out_carries_nan or any(trial.checks.carries_nan for trial in self._trials):
            findings.notes.append(_CARRIES_NAN)
        timings = [trial.findings.timing for trial in self._trials]
        weights = [workload.weight for workload in self._session.workloads]
        timed = [(weight, timing) for weight, timing in zip(weights, timings, strict=False) if timing is not None]
        if len(timed) == len(weights):
            findings.timing = mean_timing(timed)

    def _workload_results(self) -> tuple[WorkloadResult, ...]:
        if len(self._trials) == 1:
            return ()
        return tuple(
            WorkloadResult(
                workload.workload_name,
                workload.weight,
                len(trial.checks.errors),
                trial.findings.timing,
                trial.findings.custom_share,
            )
            for workload, trial in zip(self._session.workloads, self._trials, strict=True)
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
        with self._failures.explain(runner, "load"):
            self._use_module(runner, self._cases)
        device = self._cases.device
        held, all_of_it = self._platform.held_bytes(device.number, runner.pid), device.memory_bytes
        if held > all_of_it // 2:
            message = f"it holds {held >> 30} GiB of the device's {all_of_it >> 30} before its first call"
            raise Refused(Outcome.RUNTIME_ERROR, message)

    def _compile_in_first_call(self) -> None:
        """Call a program that compiles when it is called, while others have the device: it may take a minute."""
        if self._runner is not None and self._compile_seconds:
            self._mark("compile")
            with self._failures.explain(self._runner, "its first call"), contextlib.suppress(*_TOO_LITTLE_MEMORY):
                self._make_first_call(self._runner)

    def _compile_elsewhere(self) -> None:
        """Have a program that tunes itself compile in a runner of its own: it is to choose when it has the device.

        One that does not get through there, beside others, compiles when it has it.
        """
        if self._beside is None:
            return
        self._mark("compile")
        runner = self._runner_pool.spawn_bounded(self._settings.limits, self._cases.set_bytes)
        try:
            with self._failures.explain(runner, "load"):
                seconds = self._settings.limits.build_seconds
                CandidateModule(runner, self._cases, seconds, self._candidate.source, self._build)
            with contextlib.suppress(RunnerLost, OSError, *_TOO_LITTLE_MEMORY):
                try:
                    self._make_first_call(runner)
                    build = receive_build(runner, _MOST_COMPILED, 30.0, tuned=False)
                except ProgramError:
                    with self._failures.explain(runner, "its first call"):
                        raise
                refuse_findings(runner)
                self._build = build or self._build
        finally:
            runner.end()

    def _make_first_call(self, runner: RunnerHandle) -> None:
        """Make a call whose result nobody looks at, where there is memory for it."""
        seconds = self._settings.limits.call_seconds + 20 * self._cases.call_seconds + self._compile_seconds
        self._progress("compiling")
        self._session.workloads[0].make_first_call(runner, seconds, functools.partial(self._long_work, runner))

    def _long_work(self, runner: RunnerHandle) -> contextlib.AbstractContextManager[None]:
        """What may be frozen for another program's measurement."""
        if self._beside is None:
            return contextlib.nullcontext()
        return self._cases.device.background.long_work(runner.freeze)

    def _lent(self) -> contextlib.AbstractContextManager[None]:
        """The device lent to others for a block, where that is possible."""
        return self._beside() if self._beside is not None else self._cases.limit_threads()

    def _use_module(self, runner: RunnerHandle, cases: ProblemCases) -> CandidateModule:
        """Have the runner turn to the module that is for these cases, constructed now if there is none.

        One module serves all sizes whose references are constructed alike: that is how it is used.
        """
        for number, (known, module) in enumerate(self._modules):
            if known is cases or known.has_same_arguments(cases):
                if number != self._in_use:
                    module.use(number)
                self._in_use = number
                return module
        seconds = self._settings.limits.build_seconds
        first = not self._modules
        source, build = (self._candidate.source, self._build) if first else ("", b"")
        module = CandidateModule(runner, cases, seconds, source, build)
        self._modules.append((cases, module))
        self._in_use = len(self._modules) - 1
        self._findings.notes += module.notes
        if first:
            self._findings.matches = module.matches
        return module

    def _judge_runner(self) -> RunnerHandle:
        """Check, observe and time; Refused where the candidate does not pass."""
        runner = self._runner
        assert runner is not None
        for number, workload in enumerate(self._session.workloads):
            with self._named_workload(workload.workload_name):
                self._mark("prepare")
                trial = self._make_trial(runner, number)
                self._trials.append(trial)
                self._mark("check")
                # It chooses in its first calls.
                with self._cases.device.background.calm() if self._tunes_itself else contextlib.nullcontext():
                    trial.check()
        self._check_held_out(runner)
        self._mark("observe")
        for workload, trial in zip(self._session.workloads, self._trials, strict=True):
            with self._named_workload(workload.workload_name):
                self._turn_to(runner, workload.cases)
                trial.observe()
        self._refuse_fallbacks()
        self._mark("time")
        for workload, trial in zip(self._session.workloads, self._trials, strict=True):
            with self._named_workload(workload.workload_name):
                self._turn_to(runner, workload.cases)
                trial.time()
            if len(self._trials) > 1 and self._cases.device.is_scarce(self._session.set_bytes):
                # The next workload's need the memory of this one's.
                workload.baselines.close()
        self._mark("end")
        self._turn_to(runner, self._cases)
        with self._failures.explain(runner, "its end"):
            refuse_patches(runner.ask(ListPatches(), 30.0).patched)
            refuse_findings(runner)
        self._take_compiled(runner)
        return runner

    def _prepare_misuse(self, runner: RunnerHandle) -> MisuseTrial:
        self._progress("trying calls it was not made for")
        calling = functools.partial(self._long_work, runner)
        return MisuseTrial(self._session, runner, self._modules[0][1], self._trials[0].seconds, calling)

    def _take_misuse(self, misuse: MisuseTrial) -> None:
        """Keep what was found, and what the program may be called with; the reference is asked once more for that."""
        self._findings.notes += misuse.notes
        self._findings.hazards += misuse.hazards
        self._findings.generality += misuse.generality
        self._findings.domain = domain.make_domain(self._session, self._layouts(), misuse.layouts)

    def _conclude(self, left: tuple[str, ...]) -> None:
        """Find out what needs no candidate any more. `left` are processes that it left running."""
        if left:
            raise Refused(Outcome.REJECTED, f"it left processes running: {', '.join(left[:5])}", "left_processes")
        self._mark("limit")
        for trial in self._trials:
            trial.find_limit()
        if self._settings.sanitize:
            self._mark("sanitize")
            self._sanitize()

    def _take_compiled(self, runner: RunnerHandle) -> None:
        """Keep what Triton compiled in the calls, which takes a second for each kernel, for the profilers."""
        if self._settings.profilers and self._compile_seconds:
            with contextlib.suppress(ProgramError, RunnerLost, OSError):
                self.compiled = receive_build(runner, _MOST_COMPILED, 30.0)

    def _refuse_fallbacks(self) -> None:
        """Refuse a candidate that leaves every workload to torch; where it does so with some, say which."""
        refusals = [trial.fallback for trial in self._trials]
        if refusals[0] is not None and all(refusals):
            raise refusals[0]
        for trial in self._trials:
            if trial.fallback is not None:
                trial.findings.notes.append("torch does the work: nothing of its own took part")

    def _make_trial(self, runner: RunnerHandle, number: int) -> WorkloadTrial:
        workload = self._session.workloads[number]
        settings = self._session.settings_for(self._settings, number)
        module = self._turn_to(runner, workload.cases)
        return WorkloadTrial(
            workload, runner, module, settings, self._platform, self._known, self._progress, self._compile_seconds
        )

    def _turn_to(self, runner: RunnerHandle, cases: ProblemCases) -> CandidateModule:
        with self._failures.explain(runner, "construction"):
            return self._use_module(runner, cases)

    @contextlib.contextmanager
    def _named_workload(self, name: str) -> Iterator[None]:
        """Say in a refusal which workload it was, where there are several."""
        try:
            yield
        except Refused as refusal:
            if name:
                refusal.detail = f"with {name}: {refusal.detail}"
            raise

    def _check_held_out(self, runner: RunnerHandle) -> None:
        """Check sizes inside the declared ranges; Refused where one is wrong, and what is a secret stays one."""
        if self._session.held_out is None:
            return
        self._progress("checking sizes inside the declared ranges")
        for size in self._session.held_out.sizes():
            try:
                self._check_size(runner, size)
            except Refused as refusal:
                if size.is_known:
                    refusal.detail = f"with {size.workload}, an end of the declared ranges: {refusal.detail}"
                    raise
                raise Refused(refusal.outcome, self._secret_failure(refusal), refusal.rule) from None
            self._findings.held_out.append(str(size.workload))
        self._findings.notes += [f"not tried: {reason}" for reason in self._session.held_out.unchecked]

    def _check_size(self, runner: RunnerHandle, size: HeldOutSize) -> None:
        module = self._turn_to(runner, size.cases)
        cases = size.cases
        tolerance = Tolerance(cases.problem.tolerances, self._settings.precision)
        seconds = self._settings.limits.call_seconds + 20 * cases.call_seconds + 2e-9 * cases.set_bytes
        name = str(size.workload) if size.is_known else "a size inside the declared ranges"
        compiling = self._compile_seconds
        checks = CaseChecks(runner, module, cases, self._platform, tolerance, seconds, name, compiling)
        try:
            with RunnerFailures(cases, self._platform).explain(runner, "a checked call"):
                for number, case in enumerate(cases.cases_to_check(SEEDS)):
                    checks.check(case, number)
                    del case
        finally:
            self._held_out_errors += checks.errors
        self._held_out_carries_nan |= checks.carries_nan
        cases.give_back_all()

    def _secret_failure(self, refusal: Refused) -> str:
        """What is said of a failure at a size that nobody is to know."""
        what = {
            Outcome.MISMATCH: "its result is wrong",
            Outcome.RUNTIME_ERROR: "it raises an error or crashes",
            Outcome.REJECTED: f"it breaks the rule {refusal.rule}",
        }.get(refusal.outcome, "it fails")
        ranges = "; ".join(map(str, self._session.problem.dynamic))
        return (
            f"{what} at a size inside the declared ranges ({ranges}) that is none of the workloads. Which one is not "
            "said: it must be right for all of them, also for sizes that are no multiple of anything"
        )

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

    def _layouts(self) -> list[list[TensorLayout]]:
        """Of each workload: the candidate's parameters and buffers as they were loaded."""
        held = []
        for workload in self._session.workloads:
            modules = (module for known, module in self._modules if known.has_same_arguments(workload.cases))
            held.append(next(modules).layouts)
        return held

    def _finish(self, runner: RunnerHandle) -> tuple[str, ...]:
        """End the runner; the processes that it left running."""
        with contextlib.suppress(RunnerLost, ProgramError):
            runner.ask(FinishRunner(), 30.0)
        ending = runner.end()
        self._note_ending(ending)
        return tuple(ending.left)

    def _note_ending(self, ending: Ending) -> None:
        if ending.printed > len(ending.output.encode()):
            self._findings.notes.append(f"it printed {ending.printed} bytes; the first {len(ending.output)} were kept")

    def _summary(self) -> str:
        calls = len(self._findings.errors)
        checked = f"{calls} checked calls agree with the reference"
        if self._platform.emulated:
            close = sum(trial.checks.close_calls for trial in self._trials)
            first = f"the first {close} of them" if close > 1 else "the first of them"
            closely = first if close < calls else "all of them" if calls > 1 else "it"
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
