"""A runner that is stopped does nothing, whatever it started; and what it holds can be read from outside."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conditions import PATIENCE, wait_until
from kforge.types import Limits
from kforge.worker.arena import Arena
from kforge.worker.judge import process_tree, runner_handle, scheduler_waits
from kforge.worker.judge.runner_handle import RunnerHandle, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.runner_requests import send_load
from kforge.worker.protocol.program import ListPatches, LoadProgram
from kforge.worker.runner.remote_memory import RemoteMemory
from kforge.worker.sandbox import levels, system_calls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

SPINNING = """
import os, threading, torch

def spin():
    while True:
        pass

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for _ in range(2):
            threading.Thread(target=spin, daemon=True).start()
        if os.fork() == 0:
            if os.fork() == 0:
                spin()
            os._exit(0)

    def forward(self, x):
        return x
"""


@pytest.fixture(scope="module", params=["process", "best"])
def runner_pool(request: Any) -> Iterator[RunnerPool]:
    level = "process" if request.param == "process" else levels.choose("auto")
    if request.param != "process" and level == "process":
        pytest.skip("needs a sandbox: only the plain process level exists here")
    runner_pool = RunnerPool("cpu", level)
    yield runner_pool
    runner_pool.close()


def loaded(runner_pool: RunnerPool, source: str) -> RunnerHandle:
    runner = runner_pool.spawn_bounded(Limits(), 1 << 20)
    send_load(runner, LoadProgram(source, "ModelNew", watched=True, training=False), [], 0, 60)
    return runner


def wait_for_work(runner: RunnerHandle) -> None:
    """Wait until it has used a twentieth of a second of a processor."""
    before = runner.cpu_ns()
    wait_until(lambda: runner.cpu_ns() - before > 50_000_000, "it works")


@pytest.mark.cpu
def test_nothing_of_a_stopped_runner_uses_a_processor(runner_pool: RunnerPool) -> None:
    runner = loaded(runner_pool, SPINNING)
    try:
        wait_for_work(runner)
        with runner.pause():
            before = runner.cpu_ns()
            time.sleep(0.2)
            assert runner.cpu_ns() == before
        wait_for_work(runner)
    finally:
        runner.kill()


SLOW_TO_LOAD = """
import ctypes, time, torch

ctypes.CDLL(None).prctl(15, b"loading")  # PR_SET_NAME, which everybody may read
time.sleep(2.0)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
"""


@pytest.mark.cpu
def test_a_frozen_runner_does_nothing_and_answers_in_time_all_the_same(
    runner_pool: RunnerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "_ROUNDS", 10_000)
    runner = loaded(runner_pool, SPINNING)
    try:
        with runner.freeze() as stands:
            assert stands
            before = runner.cpu_ns()
            time.sleep(0.2)
            assert runner.cpu_ns() == before
        wait_for_work(runner)
    finally:
        runner.kill()
    answers = []
    runner = runner_pool.spawn_bounded(Limits(), 1 << 20)
    request = LoadProgram(SLOW_TO_LOAD, "ModelNew", watched=True, training=False)
    # However little a busy machine excuses: being frozen is not being slow.
    monkeypatch.setattr(runner_handle, "_LONGEST_STAY", 1.0)
    ahead = [0.0]
    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: time.monotonic() + ahead[0]})
    for place in (runner_handle, scheduler_waits):
        monkeypatch.setattr(place, "time", clock)
    asking = threading.Thread(target=lambda: answers.append(send_load(runner, request, [], 0, 20)))
    try:
        asking.start()
        wait_until(lambda: Path(f"/proc/{runner.pid}/comm").read_text() == "loading\n", "it loads")
        with runner.freeze():
            for _ in range(30):
                ahead[0] += 1.0
                time.sleep(0.1)
            assert not answers
        asking.join(PATIENCE)
        assert len(answers) == 1, "the time in which it was frozen does not count"
    finally:
        runner.kill()


@pytest.mark.cpu
def test_a_request_finds_a_stopped_runner_awake(runner_pool: RunnerPool) -> None:
    runner = runner_pool.spawn(Limits())
    try:
        runner.stop()
        answer, spent = runner.ask_stopped(ListPatches(), 10)
        assert answer.patched == []
        assert spent > 0
        assert runner.is_stopped
        assert runner.ask(ListPatches(), 10).patched == []
        assert not runner.is_stopped
        runner.stop()
        assert runner.end().status == 0
    finally:
        runner.kill()


@pytest.mark.cpu
def test_a_runner_that_is_gone_is_lost_and_not_waited_for(runner_pool: RunnerPool) -> None:
    runner = runner_pool.spawn(Limits())
    try:
        runner.stop()
        os.kill(runner.pid, signal.SIGKILL)
        with pytest.raises(RunnerLost):
            runner.ask_stopped(ListPatches(), 10)
    finally:
        runner.kill()


@pytest.mark.pure
def test_what_could_wake_a_stopped_process_is_denied() -> None:
    numbers = system_calls._NUMBERS.get(os.uname().machine)
    if numbers is None:
        pytest.skip("no filter for this architecture")
    text = f"""
import ctypes, fcntl, signal, sys
from kforge.worker.sandbox import kernel, system_calls
kernel.drop_privileges()
assert system_calls.deny_what_wakes()
libc = ctypes.CDLL(None, use_errno=True)
for number in {sorted(numbers.values())}:
    assert libc.syscall(number, 0, 0, 0, 0, 0, 0) == -1
    assert ctypes.get_errno() == {errno.EPERM}, number
try:
    fcntl.fcntl(0, 10, int(signal.SIGCONT))
except PermissionError:
    pass
else:
    sys.exit("a descriptor may choose its signal")
fcntl.fcntl(0, fcntl.F_GETFL)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.pure
def test_an_architecture_that_is_not_known_has_no_filter() -> None:
    assert system_calls.make_filter("riscv64") == []
    for machine in ("x86_64", "aarch64"):
        for place, (code, when_true, when_false, _) in enumerate(program := system_calls.make_filter(machine)):
            if code in (0x15, 0x35):
                assert place + 1 + max(when_true, when_false) < len(program)


@pytest.mark.cpu
def test_private_memory_is_read_and_shared_memory_is_refused() -> None:
    private, shared = torch.arange(5000, dtype=torch.float32), mmap.mmap(-1, 1 << 16)
    window = torch.frombuffer(shared, dtype=torch.float32)
    window.fill_(7.0)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        memory, arena = RemoteMemory(child), Arena.create(1 << 16)
        if not memory.can_be_read():
            pytest.skip("no process may be read from outside here")
        # What is written here after the fork is not the child's any more.
        expected = private.clone()
        private.zero_()
        assert memory.copy([[private.data_ptr(), 20_000, 0]], arena, own=True) == ""
        copied = (ctypes.c_float * 5000).from_address(arena.address)
        assert list(copied) == expected.tolist()
        pieces = [[window.data_ptr(), 400, 0]]
        assert memory.copy(pieces, arena, own=True) == "not_own"
        assert memory.copy(pieces, arena, own=False) == ""
        assert copied[3] == 7.0
        assert memory.copy([[64, 4, 0]], arena, own=True) == "not_own"
        assert memory.copy([[64, 4, 0]], arena, own=False) != ""
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
