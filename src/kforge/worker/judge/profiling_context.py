"""Profiles of a correct candidate: a fresh runner of the same sandbox level, the same inputs and parameters.

A profile comes after the verdict and cannot change it. Whatever goes wrong here is one that says why it is absent.
"""

from __future__ import annotations

import base64
import contextlib
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kforge.errors import HarnessError, UnknownPlugin
from kforge.platforms.base import Platform
from kforge.profilers import _names as naming
from kforge.profilers.base import NothingSeen, Profiler, StandaloneRun, Subject
from kforge.types import Artefact, Candidate, Problem, Profile, Settings, Verdict
from kforge.worker.judge import parameters
from kforge.worker.judge.device_turn import DeviceTurn
from kforge.worker.judge.lane import NONSENSE, Lane
from kforge.worker.judge.lease import Lease
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.runner_requests import send_load, send_state
from kforge.worker.judge.session import ProblemSession
from kforge.worker.judge.standalone import NeedsTensors, run_standalone
from kforge.worker.judge.trusted_probe import ask_machine, ask_reference
from kforge.worker.protocol.program import LoadProgram, PrepareProbe, ProbeAnswer, RunProbe

_LOOK_SECONDS = 10.0
_SLOW_BUILD_SECONDS = 15.0
"""A build that takes longer is not made again if profiling would then double the time of an attempt.

A cold start of the sandbox, which the judge counts with the first build, takes far less."""
_EMULATED = (
    "the program ran on an emulator, whose times say nothing of the hardware's: profile it where the hardware is"
)
_CALLS = 200
"""A probe makes fewer calls than this."""
_MAX_METRICS, _MAX_TEXT, _MAX_IMAGES, _MAX_IMAGE_BYTES, _MAX_RAW_BYTES = 256, 20_000, 8, 4 << 20, 4 << 20


@dataclass
class CandidateContext:
    """A ProfilingContext: a candidate as its profilers see it, for one call of `profiles`."""

    session: ProblemSession
    candidate: Candidate
    settings: Settings
    verdict: Verdict
    platform: Platform
    runner_pool: RunnerPool
    trusted: RunnerPool
    lease: Lease
    build: bytes = b""
    """What the same program built before."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each profiler took."""
    earlier: dict[str, Profile] = field(default_factory=dict)
    """What was seen so far, by the profiler's name."""
    turn_seconds: float = 0.0
    """How long those that run the program alone held the device."""
    side_by_side: bool = True
    """Whether there is memory for several programs at once."""
    _runner: RunnerHandle | None = None
    _loaded: RunnerHandle | None = None
    """One that holds the candidate, and no inputs yet."""
    _behind: RunnerHandle | None = None
    """The one that runs the program behind a tool."""
    _lost: str = ""
    _prepared: list[Profiler] = field(default_factory=list)
    _tool: Profiler | None = None
    """The profiler whose turn it is."""

    def profiles(self, names: tuple[str, ...]) -> tuple[Profile, ...]:
        """One profile for each name, in that order. Profilers that run the program alone come last, side by side."""
        if self.platform.emulated:
            return tuple(Profile(name, absent=_EMULATED) for name in dict.fromkeys(names))
        found = {name: _find_profiler(name) for name in dict.fromkeys(names)}
        tools = {name: tool for name, tool in found.items() if isinstance(tool, Profiler)}
        absent = {name: Profile(name, absent=tool) for name, tool in found.items() if not isinstance(tool, Profiler)}
        self._prepared = list(tools.values())
        self.earlier.clear()
        try:
            for name, tool in tools.items():
                if not tool.alone:
                    self.earlier[name] = self._collect(tool)
        finally:
            self._end_runners()
        seen = absent | self.earlier | self._collect_alone({name: tool for name, tool in tools.items() if tool.alone})
        return tuple(seen[name] for name in found)

    def _collect_alone(self, tools: dict[str, Profiler]) -> dict[str, Profile]:
        """The profiles of tools that run the program alone, each with what was seen before all of them."""
        contexts = {name: self._own_context() for name in tools}
        seen = {name: Profile(tool.name, absent="it came to no end") for name, tool in tools.items()}

        def collect(name: str) -> None:
            seen[name] = contexts[name]._collect_as_only(tools[name])

        try:
            # Daemons: nobody waits for a tool when the judge is stopped.
            threads = [threading.Thread(target=collect, args=(name,), daemon=True) for name in tools]
            for thread in threads:
                thread.start()
                if not self.side_by_side:
                    thread.join()
            for thread in threads:
                thread.join()
        except BaseException:
            for context in contexts.values():
                context.stop()
            raise
        for context in contexts.values():
            self.seconds |= context.seconds
            self.turn_seconds += context.turn_seconds
        return seen

    def _own_context(self) -> CandidateContext:
        """The same candidate for one tool among others."""
        return replace(
            self, seconds={}, earlier=dict(self.earlier), turn_seconds=0.0, _runner=None, _loaded=None, _behind=None
        )

    def stop(self) -> None:
        """Kill the program that a tool runs alone, if there is one."""
        if self._behind is not None:
            self._behind.kill()

    def _collect_as_only(self, tool: Profiler) -> Profile:
        held = self.lease.thread_seconds
        try:
            return self._collect(tool)
        finally:
            self._end_runners()
            self.turn_seconds += self.lease.thread_seconds - held

    def _end_runners(self) -> None:
        for runner in (self._runner, self._loaded):
            if runner is not None:
                runner.end()
        self._runner = self._loaded = None

    def _collect(self, tool: Profiler) -> Profile:
        began = time.monotonic()
        try:
            if tool.alone:
                # It holds the device for the program's calls, and not while it starts.
                return self._profile(tool)
            if self.platform.builds_apart:
                self._load_ahead(tool)
            calm = self.session.cases.device.background.calm()
            with self.lease.hold(), calm, self.session.cases.limit_threads():
                return self._profile(tool)
        finally:
            self.seconds[tool.name] = time.monotonic() - began

    def _profile(self, tool: Profiler) -> Profile:
        try:
            self._tool = tool
            return _bound_profile(tool.name, tool.collect(self))
        except NothingSeen as error:
            return Profile(tool.name, absent=str(error)[:500] or "it saw nothing")
        except NONSENSE as error:
            return Profile(tool.name, absent=f"what it was told makes no sense ({type(error).__name__})")
        except Exception as error:
            # A profiler's fault is no reason to lose a verdict.
            return Profile(tool.name, absent=f"it failed: {type(error).__name__}: {error}"[:500])

    # -- asking ----------------------------------------------------------------------------------------------------

    def ask(self, request: dict[str, Any], of: Subject = "candidate") -> dict[str, Any]:
        """What the probe of the profiler says in the runner that holds the subject; NothingSeen if nothing comes."""
        assert self._tool is not None
        message = RunProbe(self._tool.probe(), request, self.session.timed_inputs.seeds()[0])
        try:
            if of == "candidate":
                answer = self._ask_candidate(message).answer
            elif of == "reference":
                answer = ask_reference(self.session.baselines, message, self._seconds()).answer
            else:
                answer = ask_machine(self.trusted, message).answer
        except (ProgramError, RunnerLost, HarnessError) as error:
            raise NothingSeen(f"the {of} could not be profiled: {_error_text(error)}") from None
        if not isinstance(answer, dict):
            raise NothingSeen("the probe gave no answer")
        return answer

    def _ask_candidate(self, message: RunProbe) -> ProbeAnswer:
        if self._lost:
            raise NothingSeen(self._lost)
        try:
            return self.runner().ask(message, self._seconds())
        except (RunnerLost, ProgramError) as error:
            if self._runner is None or isinstance(error, RunnerLost):
                # There is none for the other profilers either.
                self._lost = f"the candidate could not be profiled: {_error_text(error)}"
            if self._lost and self._runner is not None:
                self._runner.kill()
            raise

    def runner(self) -> RunnerHandle:
        """The runner that holds the candidate, started when first asked for; NothingSeen if that takes too long."""
        if self._runner is None:
            self._lost = self._lost or ("" if self.build else _too_slow(self.verdict))
            if self._lost:
                raise NothingSeen(self._lost)
            self._runner = self._start()
        return self._runner

    def _seconds(self) -> float:
        calls = min(_CALLS * self.session.cases.call_seconds, 10 * self.settings.limits.call_seconds)
        return _LOOK_SECONDS + self.settings.limits.call_seconds + calls

    def _load_ahead(self, tool: Profiler) -> None:
        """Load the candidate while others have the device. What fails here fails again when it is asked for."""
        too_slow = self._lost or ("" if self.build else _too_slow(self.verdict))
        if self._runner is not None or self._loaded is not None or too_slow:
            return
        with self.session.cases.device.background.work(), contextlib.suppress(Exception):
            if tool.probe():
                self._loaded = self._load_candidate()

    def _start(self) -> RunnerHandle:
        """A runner that holds the candidate, with the inputs of timed calls."""
        runner, self._loaded = self._loaded or self._load_candidate(), None
        with _killed_on_failure(runner):
            sets = self.session.timed_inputs.unchanged_sets()
            Lane(runner, sets, self.session.cases.outputs, self._seconds())
        return runner

    def _load_candidate(self) -> RunnerHandle:
        """A runner with the candidate loaded, its probes ready before it was."""
        runner = self.runner_pool.spawn_bounded(self.settings.limits, self.session.cases.set_bytes)
        with _killed_on_failure(runner):
            for tool in self._prepared:
                if tool.probe():
                    runner.ask(PrepareProbe(tool.probe()), self._seconds())
            self._load(runner)
        return runner

    def _load(self, runner: RunnerHandle) -> None:
        cases = self.session.cases
        request = LoadProgram(
            source=self.candidate.source,
            class_name="ModelNew",
            watched=False,
            training=cases.reference.training,
            dtype=cases.problem.form.dtype,
            gradients=cases.reference.gradient_names,
        )
        seconds = self.settings.limits.build_seconds
        loaded = send_load(runner, request, cases.reference.init_arguments, cases.init_seed, seconds, self.build)
        parameters.check_held_tensors(loaded.state)
        matches, _lost = parameters.match(cases.initial_state, loaded.state)
        if matches:
            values = [(match.name, match.value(cases.timed_state)) for match in matches]
            send_state(runner, values, self._seconds(), cases.device)

    def standalone(
        self, command: tuple[str, ...], files: tuple[str, ...] = (), seconds: float = 120.0
    ) -> StandaloneRun:
        """The program in a process of its own behind a command, in a fresh sandbox."""
        assert self._tool is not None
        background = self.session.cases.device.background
        turn = DeviceTurn(self.lease, background, seconds) if self._tool.alone else None
        try:
            answer = run_standalone(
                self.session,
                self.candidate,
                self.settings,
                self.runner_pool,
                self.build,
                command,
                files,
                seconds,
                turn=turn,
                started=self._note_behind,
            )
        except NeedsTensors as error:
            raise NothingSeen(str(error)) from None
        except (ProgramError, RunnerLost) as error:
            raise NothingSeen(f"the candidate could not be run by itself: {_error_text(error)}") from None
        finally:
            if turn is not None:
                turn.end()
                self.turn_seconds += turn.held_seconds
        return StandaloneRun(
            status=answer.status,
            output=answer.output,
            errors=answer.errors,
            files={name: base64.b64decode(data) for name, data in answer.files.items()},
            seconds=answer.seconds,
        )

    def _note_behind(self, runner: RunnerHandle) -> None:
        self._behind = runner

    @property
    def problem(self) -> Problem:
        return self.session.cases.problem

    @property
    def process_id(self) -> int:
        return self.runner().pid

    @property
    def working_bytes(self) -> int:
        return self.session.timed_inputs.working_bytes


def _find_profiler(name: str) -> Profiler | str:
    """The profiler, or why there is none."""
    try:
        tool = naming.find(name)
        reason = str(tool.unavailable_reason())
    except UnknownPlugin as error:
        return str(error)
    except Exception as error:
        return f"it cannot be used: {type(error).__name__}: {error}"[:500]
    if reason:
        return reason
    return tool if isinstance(tool, Profiler) else "it is not a kforge.profilers.base.Profiler"


def _too_slow(verdict: Verdict) -> str:
    """Why the program is not built once more; empty if it may be."""
    seconds = verdict.evidence.seconds if verdict.evidence is not None else {}
    build = seconds.get("start", 0.0)
    if build <= _SLOW_BUILD_SECONDS or build <= sum(seconds.values()) - build:
        return ""
    return (
        f"building the program takes {build:.0f} s, longer than all the rest of judging it, so it was not built again "
        "to be profiled: a source that includes fewer headers builds sooner"
    )


def _error_text(error: Exception) -> str:
    return str(error)[:400]


def _bound_profile(name: str, profile: Profile) -> Profile:
    """A profile of ordinary size, whatever a program tried to put into it."""
    numbers = {str(key)[:100]: float(value) for key, value in profile.metrics.items() if math.isfinite(value)}
    pictures = [image for image in profile.images if len(image.data) <= _MAX_IMAGE_BYTES]
    return replace(
        profile,
        tool=name,
        metrics=dict(list(numbers.items())[:_MAX_METRICS]),
        text=_make_printable(profile.text)[:_MAX_TEXT],
        images=tuple(pictures[:_MAX_IMAGES]),
        absent=_make_printable(profile.absent)[:500],
        raw=_fitting_files(profile.raw),
    )


def _fitting_files(raw: tuple[Artefact, ...]) -> tuple[Artefact, ...]:
    """As many of a tool's own files as there is room for."""
    kept: list[Artefact] = []
    room = _MAX_RAW_BYTES
    for item in raw:
        if len(item.data) <= room:
            room -= len(item.data)
            kept.append(item)
    return tuple(kept)


def _make_printable(text: str) -> str:
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)


@contextlib.contextmanager
def _killed_on_failure(runner: RunnerHandle) -> Iterator[None]:
    """End a runner with whom something goes wrong; RunnerLost where it answers nonsense."""
    try:
        yield
    except NONSENSE as error:
        runner.kill()
        raise RunnerLost("protocol", f"a reply that makes no sense ({type(error).__name__})") from None
    except BaseException:
        runner.kill()
        raise
