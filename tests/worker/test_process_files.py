"""What the kernel's files tell of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge.worker import process_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's files of processes")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def _seen(pid: int, state: str) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if set(process_files.thread_states(pid).values()) == {state}:
            return True
        time.sleep(0.01)
    return False


def test_children_are_found_whichever_thread_started_them() -> None:
    started: list[subprocess.Popen[bytes]] = []
    leave = threading.Event()

    def start() -> None:
        started.append(subprocess.Popen(["sleep", "60"]))
        leave.wait(30)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        while not started:
            time.sleep(0.01)
        assert started[0].pid in process_files.children(os.getpid())
    finally:
        leave.set()
        thread.join()
        started[0].kill()
        started[0].wait()
    assert started[0].pid not in process_files.children(os.getpid())


def test_a_stopped_process_is_seen_to_be(sleeper: subprocess.Popen[bytes]) -> None:
    assert _seen(sleeper.pid, "S")
    os.kill(sleeper.pid, signal.SIGSTOP)
    assert _seen(sleeper.pid, "T")
    os.kill(sleeper.pid, signal.SIGCONT)
    assert _seen(sleeper.pid, "S")


def test_one_that_ended_and_was_not_waited_for_is_seen_to_be(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    assert _seen(sleeper.pid, "Z")


def test_of_one_that_is_gone_nothing_is_told(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    assert process_files.thread_states(sleeper.pid) == {}
    assert process_files.children(sleeper.pid) == []
    assert process_files.scheduled_ns(f"/proc/{sleeper.pid}/task/{sleeper.pid}") is None
    with pytest.raises(OSError, match="No such"):
        process_files.content(f"/proc/{sleeper.pid}/stat")


def test_a_long_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "maps"
    path.write_bytes(os.urandom(100_001))
    assert process_files.content(str(path)) == path.read_bytes()
