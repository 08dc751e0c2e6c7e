"""One runner, as the judge holds it: requests with deadlines, the keeper's commands, and the kernel's view of it.

Whatever the runner answers is untrusted: `ask` returns an answer only if it is a well-formed message in time, of the
kind that the request names. What its fields mean is checked where they are used.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kforge.errors import PlatformFault, WireError
from kforge.visible_text import visible
from kforge.worker.arena import Arena
from kforge.worker.judge.placement import Placement
from kforge.worker.judge.process_tree import ProcessTree, cpu_ns_of, is_at_rest, status_bytes
from kforge.worker.judge.scheduler_waits import AnswerTimes, SchedulerTimes
from kforge.worker.protocol.base import (
    PLATFORM_PHASE,
    Acknowledged,
    PeerFailure,
    PeerRequest,
    RaisedError,
    RunnerFinding,
    answer_from_wire,
    findings_from_wire,
    request_to_wire,
)
from kforge.worker.protocol.keeper import (
    ContinueProcesses,
    Ending,
    EndRunner,
    MapTarget,
    ReadMemory,
    SampleThreads,
    StopProcesses,
    ThreadPlace,
)
from kforge.worker.wire import Channel, PeerBroke, PeerError, PeerGone, PeerSilent

AnswerT = TypeVar("AnswerT")

_clock = time.perf_counter_ns
_LONGEST_REASON = 200
_POLL_SECONDS = 0.1
_KEEPER_SECONDS = 10.0
_STOP_NS = 50_000_000
_MOST_SAMPLES = 20
_LONGEST_STAY = 10.0
"""Times its limit: how long a runner may take at most, however long it had to wait for a processor."""


class RunnerLost(Exception):
    """The runner cannot go on: it ended, hung, wrote nonsense, or used too much."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        """ended, timeout, protocol, memory or unstoppable."""
        self.runner: RunnerHandle | None = None
        """Whose it is."""


class ProgramError(Exception):
    """The program raised an exception; the runner is still there."""

    def __init__(self, phase: str, report: RaisedError, findings: list[RunnerFinding]) -> None:
        super().__init__(f"it raised {report.kind}: {report.message}"[:400])
        self.phase = phase
        self.report = report
        self.findings = findings
        self.runner: RunnerHandle | None = None
        """Whose it is."""


@dataclass(eq=False)
class RunnerHandle:
    channel: Channel
    keeper: Channel
    home: str = ""
    """A folder to remove afterwards, where there is no private file system."""
    trusted: bool = True
    """Whether it runs nothing but the reference."""
    memory_limit: int = 0
    """Resident bytes of all its processes together; 0 for no limit."""
    shared_limit: int = 0
    """Bytes of shared memory on the machine beyond which this runner is suspected of holding them."""
    findings: list[RunnerFinding] = field(default_factory=list)
    """What the runner noticed about its candidate so far."""
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """What is to be done when it is ended: memory of its that is mapped here is given up."""
    pid: int = 0
    keeper_pid: int = 0
    is_stopped: bool = False
    """Whether all its processes were seen to be stopped, and were not continued since."""
    _is_frozen: bool = False
    """Whether it is kept from running while it works on an answer, so that its time does not count."""
    _has_others: bool = False
    """Whether other processes of it were there when it was stopped."""
    _tree: ProcessTree = field(default_factory=lambda: ProcessTree(0))
    _placement: Placement = field(default_factory=lambda: Placement(0))
    _ended: Ending | None = None
    _living: bool = True
    """Whether the keeper's number is still its own: another process may have it later."""

    def greet(self, seconds: float) -> None:
        """Learn both processes' ids from the kernel, before any candidate code runs.

        PlatformFault where the platform's own code raised on the way.
        """
        acknowledge(self.keeper.receive(seconds)[0])
        self.keeper_pid = self.keeper.peer_pid
        self._tree = ProcessTree(self.keeper_pid)
        acknowledge(self.channel.receive(seconds)[0])
        self.pid = self.channel.peer_pid
        self._placement = Placement(self.pid)

    def ask(self, request: PeerRequest[AnswerT], seconds: float, fds: tuple[int, ...] = ()) -> AnswerT:
        """Send a request, wait for its answer; RunnerLost or ProgramError otherwise."""
        try:
            return self._ask(request, seconds, fds)
        except (RunnerLost, ProgramError) as error:
            error.runner = self
            raise

    def ask_patiently(
        self, request: PeerRequest[AnswerT], patience: float, otherwise: Callable[[], None], seconds: float
    ) -> tuple[AnswerT, bool]:
        """An answer, and whether it came within `patience`; where it does not, `otherwise` lets the runner go on."""
        try:
            if self.is_stopped:
                self.go()
            self._send(request, (), seconds)
            in_time = True
            try:
                self._wait(patience)
            except RunnerLost as error:
                if error.kind != "timeout":
                    raise
                in_time = False
                otherwise()
            return self._receive(request, seconds), in_time
        except (RunnerLost, ProgramError) as error:
            error.runner = self
            raise

    def ask_for_descriptors(self, request: PeerRequest[AnswerT], seconds: float) -> tuple[AnswerT, list[int]]:
        """An answer and the descriptors that came with it, which are the caller's to close."""
        try:
            self._send(request, (), seconds)
            return self._receive_all(request, seconds)
        except (RunnerLost, ProgramError) as error:
            error.runner = self
            raise

    def ask_stopped(self, request: PeerRequest[AnswerT], seconds: float) -> tuple[AnswerT, int]:
        """The answer to a request, and the nanoseconds from the moment it was continued until it was stopped again.

        The request is there when it wakes up, and nothing of it runs before or after.
        """
        try:
            self.stop()
            self._send(request, (), seconds)
            if select.select([self.channel], [], [], 0)[0]:
                raise RunnerLost("protocol", "an answer before the question")
            self._placement.spread()
            began = _clock()
            self.go()
            try:
                message, stray = self._receive_message(seconds)
                self._signal_stop()
                spent = _clock() - began
                _close_all(stray)
            finally:
                self.stop()
            # Other processes of it went on until the keeper had stopped them.
            spent = _clock() - began if self._has_others else spent
            return self._read(request, message), spent
        except (RunnerLost, ProgramError) as error:
            error.runner = self
            raise

    def _ask(self, request: PeerRequest[AnswerT], seconds: float, fds: tuple[int, ...]) -> AnswerT:
        if self.is_stopped:
            self.go()
        self._send(request, fds, seconds)
        return self._receive(request, seconds)

    def _send(self, request: PeerRequest[Any], fds: tuple[int, ...], seconds: float) -> None:
        try:
            self.channel.send(request_to_wire(request), fds, timeout=seconds)
        except PeerError as error:
            raise _lost_from(error) from None

    def _receive(self, request: PeerRequest[AnswerT], seconds: float) -> AnswerT:
        answer, stray = self._receive_all(request, seconds)
        _close_all(stray)
        return answer

    def _receive_all(self, request: PeerRequest[AnswerT], seconds: float) -> tuple[AnswerT, list[int]]:
        message, descriptors = self._receive_message(seconds)
        try:
            return self._read(request, message), descriptors
        except BaseException:
            _close_all(descriptors)
            raise

    def _receive_message(self, seconds: float) -> tuple[dict[str, Any], list[int]]:
        try:
            self._wait(seconds)
            return self.channel.receive(seconds)
        except PeerError as error:
            raise _lost_from(error) from None

    def _read(self, request: PeerRequest[AnswerT], message: dict[str, Any]) -> AnswerT:
        """A message as the answer to a request; ProgramError where the program raised."""
        try:
            self.findings = findings_from_wire(message)
            answer: AnswerT | PeerFailure = answer_from_wire(request.answer, message)
        except WireError as error:
            raise RunnerLost("protocol", f"a reply that makes no sense ({error!s:.{_LONGEST_REASON}})") from None
        if isinstance(answer, PeerFailure):
            raise ProgramError(answer.phase, answer.error, self.findings)
        return answer

    def _wait(self, seconds: float) -> None:
        """Wait until a reply is there; on the way, look that the runner stays within its memory.

        Time that others took from it, on this machine or beside it on the same hardware, does not count.
        """
        began = seen = time.monotonic()
        deadline = began + seconds
        times: AnswerTimes | None = None
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RunnerLost("timeout", f"no answer after {seconds:.0f} s")
            try:
                if select.select([self.channel], [], [], min(left, _POLL_SECONDS))[0]:
                    return
            except (OSError, ValueError):
                # Closed by another thread, which ends this runner.
                raise RunnerLost("ended", "its channel was closed") from None
            before, times = times, AnswerTimes.now(self)
            since, seen = seen, times.clock
            if self._is_frozen:
                began, deadline = began + seen - since, deadline + seen - since
            elif before is not None:
                deadline = min(deadline + before.lost_seconds(times), began + _LONGEST_STAY * seconds)
            if self.memory_limit and (
                self.resident_bytes() > self.memory_limit or _shared_memory() > self.shared_limit
            ):
                raise RunnerLost("memory", f"its processes together used more than {self.memory_limit >> 20} MiB")

    def limit_memory(self, limit: int, set_bytes: int) -> None:
        """Bound what all its processes together may hold; a few sets of inputs and outputs are the judge's own."""
        self.memory_limit = limit
        self.shared_limit = _shared_memory() + limit + 16 * set_bytes + (256 << 20)

    def end(self) -> Ending:
        """End the runner and everything it started; says how it went. Safe to call twice."""
        if self._ended is None:
            self._ended = self._ask_ending()
            self.kill()
        return self._ended

    def _ask_ending(self) -> Ending:
        try:
            self.channel.close()
            return self._command(EndRunner())
        except RunnerLost:
            return Ending()

    def kill(self) -> None:
        """Close the channels without a question, which ends the keeper and with it everything else. Once is enough."""
        if self._ended is None:
            self._ended = Ending()
        keeper, self._living = self._living, False
        if self.keeper_pid > 1 and keeper:
            self._tree.kill()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.keeper_pid, signal.SIGKILL)
        self.channel.close()
        self.keeper.close()
        while self.at_end:
            with contextlib.suppress(Exception):
                self.at_end.pop()()
        if self.home:
            shutil.rmtree(self.home, ignore_errors=True)

    # -- stopped and continued ---------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the runner and everything it started, and see it at rest; RunnerLost where that cannot be had."""
        if self.is_stopped:
            return
        if not (self.trusted and self._signal_stop()):
            answer = self._command(StopProcesses())
            if not answer.stopped:
                raise self._lost_error("unstoppable", "its processes do not stop when told to")
            self._has_others = answer.others
        self._placement.note_work()
        self.is_stopped = True

    def _signal_stop(self) -> bool:
        """Stop the runner itself, at once, and see it. All else that it started takes its keeper longer."""
        try:
            os.kill(self.pid, signal.SIGSTOP)
        except (ProcessLookupError, PermissionError):
            return False
        deadline = _clock() + _STOP_NS
        while not is_at_rest(self.pid):
            if _clock() > deadline:
                return False
            # It may need the very processor that this thread is on.
            time.sleep(0.00002)
        return True

    def go(self) -> None:
        """Let the runner go on."""
        self.is_stopped = False
        try:
            if self._has_others:
                self._command(ContinueProcesses())
            os.kill(self.pid, signal.SIGCONT)
        except PermissionError:
            self._command(ContinueProcesses())
        except ProcessLookupError:
            pass
        self._placement.restore()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Keep the runner stopped for the block: nothing of it runs."""
        self.stop()
        try:
            yield
        finally:
            if self._ended is None:
                self.go()

    @contextlib.contextmanager
    def freeze(self) -> Iterator[bool]:
        """Keep all of the runner from running for the block, whatever it was asked; says whether it stands still.

        For another thread than the one that asks: the channels are not touched.
        """
        self._is_frozen = True
        try:
            yield self._tree.stop()
        finally:
            self._is_frozen = False
            self._tree.go_on()

    def show_slots(self, arena: Arena) -> bool:
        """Say where `take` puts what it reads; returns whether it can read anything here."""
        return self._command(MapTarget(arena.size), (arena.fd,)).readable

    def take(self, pieces: list[tuple[int, int, int]]) -> str:
        """Read (address, bytes, offset in the slots) pieces from the memory of its stopped process; says why not.

        "not_own" where a piece of a program nobody trusts lies elsewhere than in private memory without a file.
        """
        assert self.is_stopped
        addresses, lengths, offsets = ([piece[column] for piece in pieces] for column in range(3))
        return self._command(ReadMemory(addresses, lengths, offsets, own=not self.trusted)).refused

    def ask_with_samples(
        self, request: PeerRequest[AnswerT], seconds: float, pause: Callable[[], float]
    ) -> tuple[AnswerT, list[list[ThreadPlace]]]:
        """As `ask_stopped`, with the places its threads were at, `pause` seconds apart, in place of the time."""
        samples: list[list[ThreadPlace]] = []
        try:
            self.stop()
            self._send(request, (), seconds)
            self._placement.spread()
            self.go()
            while not select.select([self.channel], [], [], pause())[0] and len(samples) < _MOST_SAMPLES:
                samples.append(self._command(SampleThreads()).places)
            answer = self._receive(request, seconds)
            self.stop()
            return answer, samples
        except (RunnerLost, ProgramError) as error:
            error.runner = self
            raise

    def _command(self, request: PeerRequest[AnswerT], fds: tuple[int, ...] = ()) -> AnswerT:
        """Ask the runner's keeper."""
        try:
            self.keeper.send(request_to_wire(request), fds, timeout=_KEEPER_SECONDS)
            message, stray = self.keeper.receive(_KEEPER_SECONDS)
            _close_all(stray)
            answer: AnswerT | PeerFailure = answer_from_wire(request.answer, message)
        except (PeerError, WireError) as error:
            raise self._lost_error("ended", f"its keeper is gone: {error}") from None
        if isinstance(answer, PeerFailure):
            raise self._lost_error("ended", f"its keeper failed: {answer.error.message:.{_LONGEST_REASON}}")
        return answer

    def _lost_error(self, kind: str, message: str) -> RunnerLost:
        lost = RunnerLost(kind, message)
        lost.runner = self
        return lost

    # -- what the kernel says of it --------------------------------------------------------------------------------

    def resident_bytes(self) -> int:
        """Resident memory of the runner and everything below its keeper."""
        return self._tree.resident_bytes()

    def cpu_ns(self) -> int:
        """Processor time that the runner and everything it started have used so far."""
        return self._tree.cpu_ns()

    def keeper_ns(self) -> int:
        """Processor time that the runner's keeper has used so far."""
        return cpu_ns_of(self.keeper_pid)

    def working_threads(self) -> int | None:
        """How many of its threads worked in its last turn; None where nobody can tell."""
        return self._placement.working if not self._has_others else None

    def scheduler_times(self) -> SchedulerTimes:
        """What the kernel has counted of the runner and of everything it started."""
        return self._tree.scheduler_times()

    def peak_bytes(self) -> int:
        """The most resident memory the runner ever had; 0 where not readable."""
        return status_bytes(self.pid, "VmHWM")

    def native_code(self) -> tuple[str, ...]:
        """Files mapped executable into the runner, as the kernel lists them."""
        try:
            with open(f"/proc/{self.pid}/maps") as file:
                lines = file.read().splitlines()
        except OSError:
            return ()
        rows = [line.split(maxsplit=5) for line in lines]
        paths = [
            columns[5] for columns in rows if len(columns) == 6 and "x" in columns[1] and columns[5].startswith("/")
        ]
        return tuple(dict.fromkeys(paths))


def acknowledge(message: dict[str, Any]) -> None:
    """Read the first message of a process that was started, before any candidate code runs.

    PlatformFault where the platform's own code raised, PeerBroke where it could not be started otherwise.
    """
    try:
        answer = answer_from_wire(Acknowledged, message)
    except WireError as error:
        raise PeerBroke(str(error)) from None
    if isinstance(answer, PeerFailure) and answer.phase == PLATFORM_PHASE:
        raise PlatformFault(visible(answer.error.message))
    if isinstance(answer, PeerFailure):
        raise PeerBroke(f"{answer.error.kind}: {answer.error.message}")


def _close_all(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def _lost_from(error: PeerError) -> RunnerLost:
    kinds = {PeerGone: "ended", PeerSilent: "timeout", PeerBroke: "protocol"}
    return RunnerLost(kinds.get(type(error), "protocol"), str(error))


def _shared_memory() -> int:
    """Bytes of shared memory on this machine, descriptors without a mapping included."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("Shmem:"):
                return int(line.split()[1]) << 10
    return 0
