"""A real cluster of processes on loopback, for tests and benchmarks. Nothing of it outlives the block it is made in."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from conditions import PATIENCE, wait_until

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Process:
    """A process whose lines are kept, and which ends with its input."""

    def __init__(
        self, words: list[str], environment: dict[str, str] | None = None, prefix: list[str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [*(prefix or []), sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def wait_for_line(self, text: str, seconds: float = PATIENCE) -> str:
        """The first line that holds a text."""

        def there() -> bool:
            ended = self.process.poll() is not None and not self._reader.is_alive()
            assert not ended or any(text in line for line in self.lines), f"ended without {text!r}: {self.lines}"
            return any(text in line for line in self.lines)

        wait_until(there, f"{text!r} in {self.lines}", seconds)
        return next(line for line in self.lines if text in line)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                self._reader.join(5)
                stream.close()


class ClusterProcesses:
    """A scheduler and workers, each a process."""

    def __init__(self, tls: Path | None = None) -> None:
        self.tls = tls
        self.url = f"{'tls' if tls else 'tcp'}://127.0.0.1:{free_port()}"
        self.scheduler: Process | None = None
        self.workers: list[Process] = []
        self._all: list[Process] = []

    def __enter__(self) -> ClusterProcesses:
        try:
            self.start_scheduler()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._all):
            process.end()

    def start_scheduler(self) -> Process:
        """A scheduler at the cluster's address; after a kill the same again."""
        words = ["-m", "kforge.cluster", "scheduler", self.url, "--until-input-ends"]
        self.scheduler = self._start([*words, *(["--tls", str(self.tls)] if self.tls else [])])
        self.scheduler.wait_for_line("scheduler at")
        return self.scheduler

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.end()

    def add_worker(self, *words: str, wait: bool = True, environment: dict[str, str] | None = None) -> Process:
        """A null worker (`null_worker.py` has its options)."""
        more = ["--tls", str(self.tls)] if self.tls and "--tls" not in words else []
        worker = self._start([str(HERE / "null_worker.py"), self.url, *words, *more], environment)
        self.workers.append(worker)
        if wait:
            worker.wait_for_line("serving")
        return worker

    def add_workers(self, count: int, *words: str) -> list[Process]:
        """Several at once, which start side by side."""
        added = [self.add_worker(*words, wait=False) for _ in range(count)]
        for worker in added:
            worker.wait_for_line("serving", 4 * PATIENCE)
        return added

    def add_judging_worker(self, *words: str, cores: str = "", environment: dict[str, str] | None = None) -> Process:
        """A worker with real judges, on some of the cores alone."""
        command = ["-m", "kforge.cluster", "worker", "--scheduler", self.url, "--until-input-ends", *words]
        worker = self._start(command, environment, prefix=["taskset", "-c", cores] if cores else [])
        self.workers.append(worker)
        worker.wait_for_line("serving")
        return worker

    def _start(
        self, words: list[str], environment: dict[str, str] | None = None, prefix: list[str] | None = None
    ) -> Process:
        process = Process(words, environment, prefix)
        self._all.append(process)
        return process


def interrupt(process: Process) -> None:
    process.signal(signal.SIGINT)
