"""The parent of one runner: process 1 of its own process namespace where there is one.

It drains what the candidate prints, says how it ended and what it left behind, and takes everything down with it. On
the judge's word it stops everything, lets it go on, and reads the results from the memory of what is stopped. It never
runs candidate code and cannot be inspected by it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kforge.worker.arena import Arena
from kforge.worker.process_files import children, content, thread_states
from kforge.worker.protocol.base import Acknowledged, PeerFailure, PeerRequest, answer_to_wire, request_from_wire
from kforge.worker.protocol.keeper import (
    ContinueProcesses,
    Ending,
    EndRunner,
    ForkRunner,
    MapTarget,
    MemoryRead,
    ReadableMemory,
    ReadMemory,
    SampledThreads,
    SampleThreads,
    StoppedProcesses,
    StopProcesses,
)
from kforge.worker.runner import serve
from kforge.worker.runner.fault_record import FaultRecord
from kforge.worker.runner.program_counters import thread_places
from kforge.worker.runner.raised_error import describe_error
from kforge.worker.runner.remote_memory import RemoteMemory
from kforge.worker.sandbox import kernel, private, system_calls
from kforge.worker.wire import CHANNEL_LOST, Channel, PeerError

_KEPT_OUTPUT = 32 << 10
_GRACE_SECONDS = 2.0
_STOP_SECONDS = 5.0
_AT_REST = frozenset("TtZXD")
"""States, in the kernel's letters, in which a thread that was told to stop does nothing. One that waits in the kernel,
for the child it is making say, stops before it runs again.
"""


def start(request: ForkRunner, fds: list[int], level: str) -> NoReturn:
    """Called in a fresh fork of the zygote; becomes the keeper and never returns."""
    try:
        os.setsid()
        allowance = private.Allowance(
            request.memory_bytes, request.file_bytes, request.processes, request.address_space
        )
        if level == "process":
            _keep(request, fds, allowance, _Descendants())
        private.enter_namespaces()
        child = os.fork()
        if child == 0:
            private.mount_own_folders(allowance, request.kept)
            _keep(request, fds, allowance, _Namespace())
        for fd in fds:
            os.close(fd)
        os.waitpid(child, 0)
    except BaseException as error:
        with contextlib.suppress(Exception):
            failure = PeerFailure("start", describe_error(error))
            Channel(socket.socket(fileno=fds[1])).send(answer_to_wire(failure))
    os._exit(0)


def _keep(request: ForkRunner, fds: list[int], allowance: private.Allowance, others: _Others) -> NoReturn:
    reader, writer = os.pipe()
    faults = FaultRecord()
    child = os.fork()
    if child == 0:
        _become_runner(request, fds[0], writer, allowance, faults)
    os.close(fds[0])
    os.close(writer)
    if sys.platform == "linux":
        kernel.adopt_orphans()
        kernel.set_dumpable(False)
    keeper = _Keeper(child, reader, Channel(socket.socket(fileno=fds[1])), others, faults)
    try:
        keeper.run()
    finally:
        others.kill()
        os._exit(0)


def _become_runner(
    request: ForkRunner, channel_fd: int, output_fd: int, allowance: private.Allowance, faults: FaultRecord
) -> NoReturn:
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        os.dup2(channel_fd, 3)
        os.closerange(4, 65536)
        home = request.home
        os.makedirs(home, exist_ok=True)
        os.chdir(home)
        os.environ.update(request.environment)
        private.limit_resources(allowance)
        os.nice(request.nice)
        if sys.platform == "linux":
            kernel.drop_privileges()
            if request.stoppable:
                system_calls.deny_what_wakes()
            kernel.set_dumpable(True)
        channel = Channel(socket.socket(fileno=3))
        faults.install()
        serve.serve(channel, request.platform, home, faults)
    except BaseException as error:
        with contextlib.suppress(BaseException):
            print(f"runner: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(CHANNEL_LOST)
    os._exit(0)


class _Others:
    """Every process of this runner but the keeper."""

    def list(self) -> dict[int, str]:
        """The living processes: id -> name."""
        processes = {pid: _name_and_state(pid) for pid in self._pids()}
        return {pid: process[0] for pid, process in processes.items() if process is not None and process[1] != "Z"}

    def kill(self) -> None:
        raise NotImplementedError

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process: none that is being made meanwhile is left out."""
        raise NotImplementedError

    def threads(self) -> dict[int, str]:
        """Thread -> its state, of all the processes."""
        return {thread: state for pid in self._pids() for thread, state in thread_states(pid).items()}

    def _pids(self) -> Sequence[int]:
        raise NotImplementedError


class _Namespace(_Others):
    """Every process of a namespace of our own: all that exists in it is ours."""

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            # In one step for the kernel: a process that is asked to stop cannot make another one any more.
            os.kill(-1, number)

    def _pids(self) -> Sequence[int]:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and entry != "1"]


class _Descendants(_Others):
    """Without a namespace of our own: our children, and theirs, orphans included since we adopt them."""

    def signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _pids(self) -> Sequence[int]:
        pids = []
        todo = [os.getpid()]
        while todo:
            below = children(todo.pop())
            todo += below
            pids += below
        return pids

    def kill(self) -> None:
        for _ in range(50):
            living = self.list()
            if not living:
                return
            for pid in living:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
            _reap_all()


def _name_and_state(pid: int) -> tuple[str, str] | None:
    """A process's name and state, in the kernel's words; None if it is gone."""
    try:
        text = content(f"/proc/{pid}/stat").decode(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()[0]


def _reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class _Keeper:
    """Drains, reaps, and on the judge's word stops, continues and ends everything."""

    def __init__(self, child: int, reader: int, channel: Channel, others: _Others, faults: FaultRecord) -> None:
        self._child = child
        self._reader: int | None = reader
        self._channel = channel
        self._others = others
        self._faults = faults
        self._status: int | None = None
        self._printed = 0
        self._output = bytearray()
        self._memory = RemoteMemory(child)
        self._arena: Arena | None = None
        self._handlers: dict[type[PeerRequest[Any]], Callable[[Any, list[int]], Any]] = {
            ContinueProcesses: self._continue,
            StopProcesses: self._stop,
            SampleThreads: self._sample,
            MapTarget: self._map_target,
            ReadMemory: self._read_memory,
            EndRunner: self._end,
        }

    def run(self) -> None:
        self._channel.send(answer_to_wire(Acknowledged()))
        while True:
            watched = [self._channel.fileno()] + ([self._reader] if self._reader is not None else [])
            ready, _, _ = select.select(watched, [], [], 1.0)
            if self._reader in ready:
                self._drain()
            self._poll()
            if self._channel.fileno() in ready:
                try:
                    message, fds = self._channel.receive()
                except PeerError:
                    return
                request = request_from_wire(message)
                self._channel.send(answer_to_wire(self._handlers[type(request)](request, fds)))
                if isinstance(request, EndRunner):
                    return

    def _continue(self, request: ContinueProcesses, fds: list[int]) -> Acknowledged:
        self._others.signal(signal.SIGCONT)
        return Acknowledged()

    def _stop(self, request: StopProcesses, fds: list[int]) -> StoppedProcesses:
        stopped = self._stop_all()
        return StoppedProcesses(stopped, others=len(self._others.list()) > 1)

    def _sample(self, request: SampleThreads, fds: list[int]) -> SampledThreads:
        self._stop_all()
        places = thread_places(self._others.list())
        self._others.signal(signal.SIGCONT)
        return SampledThreads(places)

    def _map_target(self, request: MapTarget, fds: list[int]) -> ReadableMemory:
        self._arena = Arena(fds[0], request.memory_bytes)
        return ReadableMemory(self._memory.can_be_read())

    def _read_memory(self, request: ReadMemory, fds: list[int]) -> MemoryRead:
        assert self._arena is not None
        pieces = list(zip(request.addresses, request.lengths, request.offsets, strict=True))
        return MemoryRead(self._memory.copy(pieces, self._arena, request.own))

    def _stop_all(self) -> bool:
        """Have every thread of every process at rest, and see it twice, with none gone or ended between.

        A signal alone is only a request; and whoever ends may have others continued. Nothing is let go on meanwhile.
        """
        deadline = time.monotonic() + _STOP_SECONDS
        before: dict[int, str] | None = None
        while time.monotonic() < deadline:
            self._others.signal(signal.SIGSTOP)
            now = self._others.threads()
            if now == before and _AT_REST.issuperset(now.values()):
                return True
            if before is not None:
                time.sleep(0.00005)
            before = now
        return False

    def _end(self, request: EndRunner, fds: list[int]) -> Ending:
        """Wait a moment for the runner to leave, then report what is still there and how it ended."""
        self._others.signal(signal.SIGCONT)
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._status is None and time.monotonic() < deadline:
            if self._reader is not None and select.select([self._reader], [], [], 0.002)[0]:
                self._drain()
            self._poll()
        left = {pid: name for pid, name in self._others.list().items() if pid != self._child}
        self._others.kill()
        while self._reader is not None and select.select([self._reader], [], [], 0)[0]:
            self._drain()
        self._poll()
        output = bytes(self._output).decode(errors="replace")
        fault = self._faults.offset() if self._status == -signal.SIGSEGV else None
        return Ending(self._status, tuple(sorted(left.values())), self._printed, output, fault)

    def _drain(self) -> None:
        assert self._reader is not None
        data = os.read(self._reader, 1 << 20)
        if not data:
            os.close(self._reader)
            self._reader = None
        self._printed += len(data)
        room = _KEPT_OUTPUT - len(self._output)
        self._output += data[:room]

    def _poll(self) -> None:
        """Reap what has ended; remember how the runner itself did."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self._child:
                    self._status = os.waitstatus_to_exitcode(status)
