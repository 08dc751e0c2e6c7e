"""A cluster on this machine, for a try: a scheduler and one worker, in processes that end with this one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from kforge.cluster.address import TLS_VARIABLE, ClusterAddress, parse_address
from kforge.cluster.certificates import make_certificates
from kforge.errors import HarnessError
from kforge.models.keys import is_secret

_END_SECONDS = 15.0


class LocalCluster:
    """Both processes. They end when their standard input does, so that none is left behind, whatever happens here."""

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._processes: list[subprocess.Popen[str]] = []

    def start(self) -> ClusterAddress:
        """Start them; the address. HarnessError with what the scheduler said, if it did not start."""
        # Whoever reaches a scheduler may run code on its workers, and loopback is every user's of this machine.
        self._folder = tempfile.TemporaryDirectory(prefix="kforge-cluster-")
        certificates = make_certificates(Path(self._folder.name) / "certificates")
        address = parse_address(f"tls://127.0.0.1:{_free_port()}", certificates.path)
        scheduler = self._run("scheduler", address.url)
        assert scheduler.stdout is not None
        first = scheduler.stdout.readline()
        if not first:
            raise HarnessError(f"the scheduler did not start (exit status {scheduler.wait()})")
        self._run("worker", "--scheduler", address.url, "--platforms", self._platform)
        return address

    def ended_reason(self) -> str:
        """Why it judges no more, without anybody having closed it; empty while it does."""
        for process in self._processes:
            if process.poll() is not None:
                return f"a process of the cluster on this machine ended by itself (exit status {process.returncode})"
        return ""

    def close(self) -> None:
        """End both, the worker first."""
        for process in reversed(self._processes):
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._processes.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def _run(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kforge.cluster", *words, "--until-input-ends"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if words[0] == "scheduler" else subprocess.DEVNULL,
            env={
                **{name: value for name, value in os.environ.items() if not is_secret(name)},
                TLS_VARIABLE: str(Path(self._folder.name) / "certificates") if self._folder else "",
            },
            # Ctrl-C is for this process: it ends them in order.
            start_new_session=True,
            text=True,
        )
        self._processes.append(process)
        return process


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
