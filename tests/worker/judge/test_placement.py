"""Which processors the threads of a stopped process wake up on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kforge.worker.judge.placement import Placement, in_order_of_use
from kforge.worker.judge.process_tree import is_at_rest

USABLE = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
pytestmark = pytest.mark.pure
two_processors = pytest.mark.skipif(len(USABLE) < 2, reason="two processors: there is one")

START = """
import hashlib, threading
data = bytes(1 << 20)

def work(times):
    for _ in range(times):
        hashlib.sha256(data).digest()

print("ready", flush=True)
"""
TWO_THREADS = START + "threading.Thread(target=work, args=(1 << 40,), daemon=True).start()\nwork(1 << 40)\n"
ONE_THREAD = START + "work(1 << 40)\n"
NEW_THREADS = (
    START
    + """
while True:
    threads = [threading.Thread(target=work, args=(2,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    work(2)
    for thread in threads:
        thread.join()
"""
)


@contextlib.contextmanager
def stopped_process(program: str) -> Iterator[tuple[int, Placement]]:
    """A process that worked for a moment and is stopped, and the placement of its threads."""
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            placement = Placement(running.pid)
            time.sleep(0.1)
            stop(running.pid, placement)
            yield running.pid, placement
        finally:
            running.kill()


def take_turn(pid: int, placement: Placement) -> set[int]:
    """Which processors the first thread may use in a turn of the process: stopped before it, and after."""
    placement.spread()
    os.kill(pid, signal.SIGCONT)
    placement.restore()
    allowed = os.sched_getaffinity(pid)
    time.sleep(0.1)
    stop(pid, placement)
    return allowed


def stop(pid: int, placement: Placement) -> None:
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 20
    while not is_at_rest(pid):
        assert time.monotonic() < deadline, "it does not stop"
        time.sleep(0.001)
    placement.note_work()


def threads_of(pid: int) -> list[int]:
    return sorted(map(int, os.listdir(f"/proc/{pid}/task")))


@two_processors
def test_threads_that_work_have_a_processor_each_for_their_turn() -> None:
    with stopped_process(TWO_THREADS) as (pid, placement):
        for _ in range(3):
            assert placement.working == 2
            placement.spread()
            places = [os.sched_getaffinity(thread) for thread in threads_of(pid)]
            assert sorted(map(len, places)) == [1, 1]
            assert places[0] != places[1]
            assert len(take_turn(pid, placement)) == 1
            assert [os.sched_getaffinity(thread) for thread in threads_of(pid)] == [USABLE, USABLE]


@two_processors
def test_a_question_between_two_turns_changes_nothing() -> None:
    """The threads rest while they are asked, which says nothing of the turn that follows."""
    with stopped_process(TWO_THREADS) as (pid, placement):
        take_turn(pid, placement)
        for _ in range(3):
            placement.note_work()
            assert placement.working == 2
        assert len(take_turn(pid, placement)) == 1


@two_processors
def test_a_thread_that_works_alone_may_go_where_it_likes() -> None:
    with stopped_process(ONE_THREAD) as (pid, placement):
        assert placement.working == 1
        assert take_turn(pid, placement) == USABLE


@two_processors
def test_threads_that_are_made_in_a_turn_may_go_where_they_like() -> None:
    """They inherit what the thread that makes them may use."""
    with stopped_process(NEW_THREADS) as (pid, placement):
        take_turn(pid, placement)
        for _ in range(3):
            assert take_turn(pid, placement) == USABLE


def test_cores_come_before_their_second_threads_and_the_judges_processor_last_of_each() -> None:
    assert in_order_of_use(range(4), lambda processor: processor // 2, own=None) == [0, 2, 1, 3]
    assert in_order_of_use(range(4), lambda processor: processor % 2, own=None) == [0, 1, 2, 3]
    assert in_order_of_use(range(4), lambda processor: processor % 2, own=0) == [1, 0, 2, 3]
    assert in_order_of_use({1, 5}, lambda processor: processor, own=1) == [5, 1]
