"""The judge: one per device, warm, for many candidates."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import torch

from kforge import registry
from kforge.cache_folder import cache_folder
from kforge.errors import HarnessError, KForgeError, PluginAbsent, ProblemError
from kforge.platforms._method_fault import platform_method
from kforge.platforms.base import Platform
from kforge.types import Candidate, Job, Outcome, Problem, Profile, Report, Settings, Verdict
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge import explain
from kforge.worker.judge.admission import IDLE_PART, Admission, Visit
from kforge.worker.judge.baselines import PROCESS_BYTES, wanted_baselines
from kforge.worker.judge.builds import BuildFailed, BuildRefused, Builds
from kforge.worker.judge.device import Device
from kforge.worker.judge.evaluation import Evaluation, Progress
from kforge.worker.judge.lease import Lease
from kforge.worker.judge.own_processors import processors_at_start
from kforge.worker.judge.profiling_context import CandidateContext
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.session import ProblemSession
from kforge.worker.sandbox import kernel, levels

_KEPT_SESSIONS, _KEPT_ON_DEVICE = 3, 12
"""Problems known at once before another is read."""
_ROOM_SHARE, _COPIES, _CALLS, _PROCESSES = 0.9, 8, 7, 6
"""What programs in hand may take of a device's memory; and what one takes: so many times what its timed calls go round
in, as the judge, two baselines, itself and its profilers each hold a share of that, or so many times what a call gains
meanwhile, as the judge does in float64 and each of the others in float32; and the processes that hold it.
"""
_PROFILED_PART = 0.6
"""Of that, what profiling takes: the program, in one or two processes, and eager, but no twin of it and no reference.
An estimate.
"""
_Result = TypeVar("_Result")


class Judge:
    """Evaluates candidates on one device of one platform. Use it as a context manager, or close it.

    Several threads may ask at once: they build side by side and take turns on the device.
    """

    def __init__(self, platform: str = "cpu", device: int | None = None) -> None:
        self._platform: Platform = registry.load("platforms", platform)
        reason = self._platform.unavailable_reason()
        if reason:
            raise PluginAbsent(f"platform {platform}: {reason}")
        devices = self._platform.devices()
        number = devices[0] if device is None else device
        if number not in devices:
            raise PluginAbsent(f"platform {platform}: no device {number}; there are: {', '.join(map(str, devices))}")
        # Before anything that was generated runs: where others' work counts depends on it.
        processors_at_start()
        self._device = Device(self._platform, number)
        with platform_method(platform, "enter_judge"):
            self._platform.enter_judge(number)
        self._runner_pools: dict[str, RunnerPool] = {}
        self._trusted = RunnerPool(platform, "process", _trusted_environment(), number)
        self._builders: dict[str, Builds] = {}
        self._blind_pools: list[RunnerPool] = []
        self._sessions: OrderedDict[tuple[object, ...], ProblemSession] = OrderedDict()
        self._in_use: dict[int, int] = {}
        self._secret = secrets.token_hex(32)
        self._turn = threading.RLock()
        self._reading: dict[tuple[object, ...], threading.Lock] = {}
        self._closed = False
        self._admission = Admission()
        self.lease = Lease(self._lease_file())

    def evaluate(
        self,
        problem: Problem,
        candidate: Candidate,
        settings: Settings | None = None,
        progress: Progress = lambda _: None,
    ) -> Verdict:
        """The verdict on one candidate. Raises only if the problem or the harness is at fault."""
        wanted = settings or Settings()

        def judge_once(visit: Visit | None) -> Verdict:
            with self._session_for(problem, wanted, progress, visit) as session:
                return self._evaluate(session, candidate, wanted, progress, visit)[0]

        return self._with_room(judge_once, lambda verdict: verdict)

    def report(self, job: Job, progress: Progress = lambda _: None) -> Report:
        """The verdict on a job and, of a correct candidate, the profiles it asks for. Raises as `evaluate` does."""
        return self._with_room(lambda visit: self._report(job, progress, visit), lambda report: report.verdict)

    def _with_room(
        self, judge_once: Callable[[Visit | None], _Result], verdict_of: Callable[[_Result], Verdict]
    ) -> _Result:
        """What `judge_once` gives; where the device's memory did not suffice beside other programs, once more alone."""
        with self._admission.among_others() as visit:
            try:
                result = judge_once(visit)
                verdict = verdict_of(result)
                short = verdict.outcome is Outcome.RUNTIME_ERROR and explain.is_short_of_memory(verdict.detail)
            except (HarnessError, ProblemError) as error:
                if not explain.is_short_of_memory(str(error)) or not self._shares_memory(visit):
                    raise
            else:
                if not short or not self._shares_memory(visit):
                    self._require_open()
                    return result
        self._require_open()
        with self._admission.alone():
            self._close_idle_sessions(0)
            self._platform.empty_cache()
            result = judge_once(None)
        self._require_open()
        return result

    def _shares_memory(self, visit: Visit) -> bool:
        """Whether what was short of memory shared the device's with other programs or problems."""
        return self._device.has_own_memory and (visit.had_company or len(self._sessions) > 1)

    def _report(self, job: Job, progress: Progress, visit: Visit | None) -> Report:
        began, held = time.monotonic(), self.lease.thread_seconds
        with self._session_for(job.problem, job.settings, progress, visit) as session:
            verdict, compiled = self._evaluate(session, job.candidate, job.settings, progress, visit)
            judged, held_for_verdict = time.monotonic(), self.lease.thread_seconds
            profiles: tuple[Profile, ...] = ()
            each: dict[str, float] = {}
            in_turns = 0.0
            if job.is_profiled(verdict):
                if visit is not None:
                    self._admission.lower_share(visit, _PROFILED_PART)
                context = self._profiling_context(session, job, verdict, compiled)
                needs_much = self._device.is_scarce(max(session.set_bytes, session.cases.gained_bytes))
                context.side_by_side = visit is not None and not needs_much
                progress("profiling")
                profiles = context.profiles(job.settings.profilers)
                each, in_turns = context.seconds, context.turn_seconds
            profiled = self.lease.thread_seconds - held_for_verdict + in_turns
        seconds = {
            "verdict": judged - began,
            "profiles": time.monotonic() - judged,
            "device": held_for_verdict - held + profiled,
            "device for profiles": profiled,
            "room": visit.waited_seconds if visit is not None else 0.0,
            **each,
        }
        return Report(
            job.id,
            job.problem.name,
            job.candidate.id,
            job.candidate.platform,
            verdict,
            profiles,
            {name: round(value, 3) for name, value in seconds.items()},
        )

    def _evaluate(
        self,
        session: ProblemSession,
        candidate: Candidate,
        settings: Settings,
        progress: Progress,
        visit: Visit | None,
    ) -> tuple[Verdict, bytes]:
        """The verdict, and what the candidate compiled while it was judged, where profilers can use that."""
        runner_pool = self._launch_runner_pool(settings)
        builds = self._builds(runner_pool.level) if self._platform.builds_apart else None
        evaluation = Evaluation(
            session,
            candidate,
            settings,
            self._platform,
            runner_pool,
            runner_pool.known_folders(),
            progress,
            builds,
            self._beside_others if self._platform.builds_apart else None,
        )
        if not self._platform.builds_apart:
            with self.lease.hold(progress):
                evaluation.build()
                evaluation.prepare()
                return self._conclude(evaluation), evaluation.compiled
        try:
            evaluation.build()
            self._prepare(evaluation, session, settings, progress, visit)
            progress("waiting for the device")
            with self.lease.hold(progress):
                return self._conclude(evaluation), evaluation.compiled
        finally:
            evaluation.abandon()

    @contextlib.contextmanager
    def _beside_others(self) -> Iterator[None]:
        """Lend the device to others for what needs none for itself."""
        with self.lease.lend(), self._device.background.work():
            yield

    def _prepare(
        self,
        evaluation: Evaluation,
        session: ProblemSession,
        settings: Settings,
        progress: Progress,
        visit: Visit | None,
    ) -> None:
        """Load a candidate, and have the baselines that it is to be timed against ready.

        They start beside the candidate where there is room for them, and otherwise when it is compiled.
        """
        timed = settings.timing_seconds > 0 and not evaluation.is_refused
        wanted = wanted_baselines(settings, self._platform) if timed else ()
        begins = visit is not None and not self._admission.has_whole_share(visit)
        with ThreadPoolExecutor(1, "baselines") as beside:
            started = beside.submit(self._start_baselines, session, wanted) if wanted and not begins else None
            with self._device.background.work():
                evaluation.prepare()
            if started is not None:
                started.result()
        if evaluation.is_refused:
            return
        if visit is not None and begins:
            progress("waiting for room on the device")
            self._clear_room(self._admission.wait_for_the_rest(visit, self._room_bytes))
            if wanted:
                self._start_baselines(session, wanted)
        if wanted:
            progress("building the baselines")
            with self._device.background.work():
                for workload in session.workloads:
                    workload.baselines.make_ready(wanted)

    def _start_baselines(self, session: ProblemSession, wanted: tuple[str, ...]) -> None:
        with self._device.background.work():
            session.baselines.start(wanted, session.workloads[0].make_first_call)

    def _conclude(self, evaluation: Evaluation) -> Verdict:
        try:
            return evaluation.verdict()
        except (DeviceMemoryFull, torch.OutOfMemoryError):
            raise self._out_of_memory_error() from None

    def _out_of_memory_error(self) -> HarnessError:
        self._close_idle_sessions(0)
        free, total = self._device.free_bytes() / (1 << 30), self._device.memory_bytes / (1 << 30)
        return HarnessError(
            f"the device ran out of memory while judging ({free:.0f} of {total:.0f} GiB are free now): end other work "
            "on it, or give the problem smaller sizes for this device class"
        )

    def _profiling_context(
        self, session: ProblemSession, job: Job, verdict: Verdict, compiled: bytes
    ) -> CandidateContext:
        """What profilers see of a job's candidate. `compiled` is what it compiled when it was judged."""
        runner_pool = self._launch_runner_pool(job.settings)
        builds = self._builds(runner_pool.level) if self._platform.builds_apart else None
        try:
            build = builds.archive(job.candidate, job.settings) if builds is not None else b""
        except (BuildFailed, BuildRefused):
            # It was built when it was judged; if it cannot be now, its profiles say so.
            build = b""
        return CandidateContext(
            session,
            job.candidate,
            job.settings,
            verdict,
            self._platform,
            runner_pool,
            self._trusted,
            self.lease,
            build or compiled,
        )

    @contextlib.contextmanager
    def _session_for(
        self, problem: Problem, settings: Settings, progress: Progress, visit: Visit | None = None
    ) -> Iterator[ProblemSession]:
        """The session of a problem, kept open for the block; a visit waits until there is room for its program."""
        self._launch_runner_pool(settings)
        with self._turn:
            self._trusted.launch()
        session = None
        try:
            shares = visit is not None and self._device.has_own_memory
            with self._admission.arrival() if shares else contextlib.nullcontext():
                progress("reading the problem")
                session = self._take_session(problem, settings)
                if visit is not None and shares:
                    progress("waiting for room on the device")
                    taken = self._admission.wait_for_room(visit, _needed_bytes(session), self._room_bytes)
                    self._clear_room(taken)
            yield session
        finally:
            if session is not None:
                with self._turn:
                    self._in_use[id(session)] -= 1

    @property
    def _room_bytes(self) -> int:
        """What programs in hand may have of the device's memory together."""
        return int(_ROOM_SHARE * self._device.memory_bytes)

    def _clear_room(self, needed_bytes: int) -> None:
        """Have problems that no program is judged on, the oldest first, make room for those that were let in."""
        room = self._room_bytes - needed_bytes
        with self._turn:
            idle = [session for session in self._sessions.values() if not self._in_use.get(id(session))]
            kept = len(self._sessions)
            held = [IDLE_PART * _needed_bytes(session) for session in idle]
            while held and sum(held) > room:
                held.pop(0)
                kept -= 1
            if kept == len(self._sessions):
                return
            self._close_idle_sessions(kept)
        with self.lease.hold():
            # It waits for the device, where another may be timed.
            self._platform.empty_cache()

    def session(self, problem: Problem, settings: Settings) -> ProblemSession:
        """The session of a problem: what is known of it, from before or made now."""
        with self._session_for(problem, settings, lambda _: None) as session:
            return session

    def _take_session(self, problem: Problem, settings: Settings) -> ProblemSession:
        """A problem's session, counted as in use. Threads with other problems need not wait for one that is made."""
        seed = self._seed_for(problem) if settings.seed is None else settings.seed
        key = (problem.id, tuple(problem.distributions), seed)
        with self._turn:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:
            with self._turn:
                session = self._sessions.get(key)
                if session is not None:
                    self._sessions.move_to_end(key)
                    self._in_use[id(session)] = self._in_use.get(id(session), 0) + 1
            self._make_room()
            if session is None:
                session = self._read_problem(problem, settings, seed)
                with self._turn:
                    self._sessions[key] = session
                    self._in_use[id(session)] = self._in_use.get(id(session), 0) + 1
            if self._device.is_scarce(session.set_bytes):
                self._close_idle_sessions(0)
                self._device.give_back_all(session.set_bytes)
            return session

    def _seed_for(self, problem: Problem) -> int:
        """A seed of the problem's own: what a program might learn of one must be worth nothing for the next."""
        text = f"{self._secret}/{problem.id}/{tuple(problem.distributions)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")

    def _make_room(self) -> None:
        """Forget what is idle: all but a few problems, and more where the device's memory is short."""
        if not self._device.has_own_memory:
            self._close_idle_sessions(_KEPT_SESSIONS)
            return
        self._close_idle_sessions(_KEPT_ON_DEVICE)
        if self._device.free_bytes() < self._device.memory_bytes // 3:
            self._close_idle_sessions(_KEPT_SESSIONS)

    def _read_problem(self, problem: Problem, settings: Settings, seed: int) -> ProblemSession:
        try:
            with self.lease.hold():
                session = ProblemSession(problem, self._device, self._trusted, settings, seed)
                if self._platform.builds_apart and settings.timing_seconds > 0:
                    # Baselines are then built beside the device's other work.
                    for workload in session.workloads:
                        workload.timed_inputs.sets()
                if self._platform.builds_apart:
                    session.workloads[0].draw_first_call()
        except KForgeError:
            raise
        except (DeviceMemoryFull, torch.OutOfMemoryError):
            raise self._out_of_memory_error() from None
        except Exception as error:
            what = f"cannot be judged: {type(error).__name__}: {error}"
            raise ProblemError(what, path=problem.path or problem.name) from error
        return session

    def _require_open(self) -> None:
        """HarnessError where the judge was closed meanwhile: it killed the program then, whose fault that is not."""
        if self._closed:
            raise HarnessError("the judge was closed before it was through")

    def close(self) -> None:
        self._closed = True
        # Another thread may be in the middle of a judgement that is being broken off.
        self._close_sessions()
        for runner_pool in [*list(self._runner_pools.values()), *self._blind_pools, self._trusted]:
            runner_pool.close()
        self._runner_pools.clear()

    def _close_idle_sessions(self, kept: int) -> None:
        """Forget problems that no evaluation is using, the oldest first, until at most so many are known."""
        with self._turn:
            idle = [key for key, session in self._sessions.items() if not self._in_use.get(id(session))]
            for old in idle[: max(0, len(self._sessions) - kept)]:
                self._sessions.pop(old).close()

    def _close_sessions(self) -> None:
        for session in list(self._sessions.values()):
            session.close()
        self._sessions.clear()

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch_runner_pool(self, settings: Settings) -> RunnerPool:
        level = levels.choose(settings.sandbox)
        with self._turn:
            if level not in self._runner_pools:
                if level == "process":
                    # Nothing but this keeps a process of the same user from reading our memory and environment.
                    kernel.forbid_inspection()
                self._runner_pools[level] = RunnerPool(self._platform.name, level, device=self._device.number)
            self._runner_pools[level].launch()
            return self._runner_pools[level]

    def _builds(self, level: str) -> Builds:
        """Builders at the same sandbox level, without sight of the device."""
        with self._turn:
            if level not in self._builders:
                runner_pool = RunnerPool(self._platform.name, level, device=self._device.number, blind=True)
                self._blind_pools.append(runner_pool)
                self._builders[level] = Builds(runner_pool)
            return self._builders[level]

    def _lease_file(self) -> Path | None:
        """Where the turns of all processes on this machine are kept, for a device that they would share."""
        if not self._device.has_own_memory:
            return None
        name = self._platform.identity(self._device.number)
        return Path(tempfile.gettempdir()) / f"kforge-lease-{name.replace('/', '_')}"


def _trusted_environment() -> dict[str, str]:
    """The environment of baselines, which may keep what torch.compile built; candidates never see that folder."""
    folder = cache_folder() / f"inductor-{torch.__version__}"
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        # A choice that was made once, beside whatever ran then, must not stay for good.
        "TRITON_CACHE_AUTOTUNING": "0",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _needed_bytes(session: ProblemSession) -> int:
    """What judging a program takes of the device's memory at most, by what was seen of large problems."""
    held = max(workload.timed_inputs.working_bytes for workload in session.workloads)
    gained = max(workload.cases.gained_bytes for workload in session.workloads)
    return max(_COPIES * held, _CALLS * gained) + _PROCESSES * PROCESS_BYTES
