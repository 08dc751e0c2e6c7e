"""The parent of one runner: process 1 of its own process namespace where there is one.

It drains what the candidate prints, says how it ended and what it left behind, and takes everything down with it. It
never runs candidate code and cannot be inspected by it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from kforge.worker.runner import serve
from kforge.worker.sandbox import kernel, private
from kforge.worker.wire import CHANNEL_LOST, Channel, PeerError

_KEPT_OUTPUT = 32 << 10
_GRACE_SECONDS = 2.0


def start(request: dict[str, Any], fds: list[int], level: str) -> NoReturn:
    """Called in a fresh fork of the zygote; becomes the keeper and never returns."""
    try:
        os.setsid()
        allowance = private.Allowance(**request["allowance"])
        if level == "process":
            _keep(request, fds, allowance, _Descendants())
        private.enter_namespaces()
        child = os.fork()
        if child == 0:
            private.own_folders(allowance, tuple(request["kept"]))
            _keep(request, fds, allowance, _Namespace())
        for fd in fds:
            os.close(fd)
        os.waitpid(child, 0)
    except BaseException as error:
        with contextlib.suppress(Exception):
            Channel(socket.socket(fileno=fds[1])).send({"ok": False, "error": f"{type(error).__name__}: {error}"})
    os._exit(0)


def _keep(request: dict[str, Any], fds: list[int], allowance: private.Allowance, others: _Others) -> NoReturn:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become_runner(request, fds[0], writer, allowance)
    os.close(fds[0])
    os.close(writer)
    if sys.platform == "linux":
        kernel.adopt_orphans()
        kernel.set_dumpable(False)
    keeper = _Keeper(child, reader, Channel(socket.socket(fileno=fds[1])), others)
    try:
        keeper.run()
    finally:
        others.kill()
        os._exit(0)


def _become_runner(request: dict[str, Any], channel_fd: int, output_fd: int, allowance: private.Allowance) -> NoReturn:
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        os.dup2(channel_fd, 3)
        os.closerange(4, 65536)
        home = request["home"]
        os.makedirs(home, exist_ok=True)
        os.chdir(home)
        os.environ.update(request["environment"])
        private.limit_resources(allowance)
        os.nice(request["nice"])
        if sys.platform == "linux":
            kernel.drop_privileges()
            kernel.set_dumpable(True)
        channel = Channel(socket.socket(fileno=3))
        serve.serve(channel, request["platform"], home)
    except BaseException as error:
        with contextlib.suppress(BaseException):
            print(f"runner: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(CHANNEL_LOST)
    os._exit(0)


class _Others:
    """Every process of this runner but the keeper."""

    def list(self) -> dict[int, str]:
        """Living ones: process id -> name."""
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError


class _Namespace(_Others):
    """In a process namespace of our own everything that exists is ours."""

    def list(self) -> dict[int, str]:
        return {pid: name for pid, (name, state, _) in _processes().items() if pid != 1 and state != "Z"}

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)


class _Descendants(_Others):
    """Without one: our children, and theirs, orphans included since we adopt them."""

    def list(self) -> dict[int, str]:
        table = _processes()
        mine, grown = {os.getpid()}, True
        while grown:
            more = {pid for pid, (_, _, parent) in table.items() if parent in mine} - mine
            mine |= more
            grown = bool(more)
        return {pid: table[pid][0] for pid in mine - {os.getpid()} if pid in table and table[pid][1] != "Z"}

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


def _processes() -> dict[int, tuple[str, str, int]]:
    """Process id -> (name, state, parent) from /proc."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                text = file.read().decode(errors="replace")
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        found[int(entry)] = (name, fields[0], int(fields[1]))
    return found


def _reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class _Keeper:
    """Drains, reaps, and on the judge's word ends everything."""

    def __init__(self, child: int, reader: int, channel: Channel, others: _Others) -> None:
        self._child = child
        self._reader: int | None = reader
        self._channel = channel
        self._others = others
        self._status: int | None = None
        self._printed = 0
        self._output = bytearray()

    def run(self) -> None:
        self._channel.send({"ok": True, "child": self._child})
        while True:
            watched = [self._channel.fileno()] + ([self._reader] if self._reader is not None else [])
            ready, _, _ = select.select(watched, [], [], 1.0)
            if self._reader in ready:
                self._drain()
            self._poll()
            if self._channel.fileno() in ready:
                try:
                    self._channel.receive()
                except PeerError:
                    return
                self._channel.send(self._end())
                return

    def _end(self) -> dict[str, Any]:
        """Wait a moment for the runner to leave, then report what is still there and how it ended."""
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
        return {
            "ok": True,
            "status": self._status,
            "left": sorted(left.values()),
            "printed": self._printed,
            "output": bytes(self._output).decode(errors="replace"),
        }

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
        """Reap; remember how the runner itself ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self._child:
                    self._status = os.waitstatus_to_exitcode(status)
