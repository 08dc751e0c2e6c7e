"""A process with torch imported that forks runners on request. It never loads candidate code.

Started by the judge as `python -m kforge.worker.runner.zygote FD LEVEL SCRATCH PLATFORM [MODULE ...]`, with the view on
standard input for the unshare level. A fork request carries two sockets: the runner's channel and its keeper's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

from kforge import registry
from kforge.errors import PlatformFault
from kforge.platforms._method_fault import platform_method
from kforge.worker.protocol.base import (
    PLATFORM_PHASE,
    Acknowledged,
    PeerFailure,
    RaisedError,
    answer_to_wire,
    request_from_wire,
)
from kforge.worker.protocol.keeper import ForkRunner
from kforge.worker.sandbox import kernel, rootfs
from kforge.worker.sandbox.view import FileSystemView
from kforge.worker.wire import Channel, PeerError

_keepers: set[int] = set()


def main(arguments: list[str]) -> int:
    fd, level, scratch, platform, *warm_imports = int(arguments[0]), *arguments[1:]
    if sys.platform == "linux":
        # It ends when the judge's end of its channel closes, and not with the thread that happened to start it.
        kernel.adopt_orphans()
    if level == "unshare":
        data = json.loads(sys.stdin.read())
        view = FileSystemView(*(tuple(map(_tuple, data[name])) for name in ("shown", "links", "covered", "devices")))
        rootfs.enter(view, scratch)
    channel = Channel(socket.socket(fileno=fd))
    try:
        import torch

        _warm(torch, platform, warm_imports)
        channel.send(answer_to_wire(Acknowledged()))
    except Exception as error:
        phase = PLATFORM_PHASE if isinstance(error, PlatformFault) else "start"
        channel.send(answer_to_wire(PeerFailure(phase, RaisedError(type(error).__name__, str(error)))))
        return 1
    if sys.platform == "linux":
        kernel.set_dumpable(False)
    _serve(channel, level)
    return 0


def _tuple(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def _warm(torch: Any, platform: str, more: list[str]) -> None:
    """Import what every runner will need, without starting a thread: threads do not survive a fork.

    No device is touched: a process that has talked to one cannot be forked.
    """
    import kforge.worker.runner.keeper
    import kforge.worker.runner.serve  # noqa: F401
    from kforge.worker.runner.modes import Poison

    torch.set_num_interop_threads(1)
    with torch.no_grad(), Poison():
        # The first operator under a dispatch mode imports torch's compiler, which takes a second.
        layer = torch.nn.Linear(2, 2)
        layer.load_state_dict(layer.state_dict())
        layer(torch.zeros(1, 2))
    with platform_method(platform, "its module"):
        warm_imports = registry.load("platforms", platform).warm_imports
    for name in (*warm_imports, *more):
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _serve(channel: Channel, level: str) -> None:
    from kforge.worker.runner import keeper

    signal.signal(signal.SIGCHLD, _reap)
    while True:
        try:
            message, fds = channel.receive()
        except PeerError:
            return
        request = request_from_wire(message)
        assert isinstance(request, ForkRunner)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            channel.close()
            keeper.start(request, fds, level)
        _keepers.add(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for fd in fds:
            os.close(fd)


def _reap(_signal: int, _frame: Any) -> None:
    """Collect keepers that ended, and end what a killed keeper left to us."""
    try:
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            _keepers.discard(pid)
    except ChildProcessError:
        return
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as file:
            for orphan in set(map(int, file.read().split())) - _keepers:
                os.kill(orphan, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
