"""Which processors the threads of a stopped process wake up on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from conditions import wait_until
from kforge.worker.judge.placement import Placement, in_order_of_use
from kforge.worker.judge.process_tree import cpu_ns_of, is_at_rest
from kforge.worker.process_files import scheduled_ns, thread_folders

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


TURN_NS, ROUNDS_NS = 20_000_000, 100_000_000
"""What each thread works in a turn at least; what all do together where they come and go."""


@contextlib.contextmanager
def stopped_process(program: str, threads: int) -> Iterator[tuple[int, Placement]]:
    """A process that worked for a moment, with so many threads or with new ones all the time (0), and is stopped; and
    the placement of its threads.
    """
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            placement = Placement(running.pid)
            wait_for_work(running.pid, threads, {})
            stop(running.pid, placement)
            yield running.pid, placement
        finally:
            running.kill()


def take_turn(pid: int, placement: Placement, threads: int) -> set[int]:
    """Which processors the first thread may use in a turn of the process: stopped before it, and after."""
    before = used_ns(pid)
    placement.spread()
    os.kill(pid, signal.SIGCONT)
    placement.restore()
    allowed = os.sched_getaffinity(pid)
    wait_for_work(pid, threads, before)
    stop(pid, placement)
    return allowed


def wait_for_work(pid: int, threads: int, before: dict[int, int]) -> None:
    """Wait until so many threads have worked since, none of them much less than the others."""
    by_all = cpu_ns_of(pid)

    def have_worked() -> bool:
        if not threads:
            return cpu_ns_of(pid) - by_all > ROUNDS_NS
        spent = sorted((now - before.get(thread, 0) for thread, now in used_ns(pid).items()), reverse=True)
        return len(spent) >= threads and spent[threads - 1] > max(TURN_NS, spent[0] / 5)

    wait_until(have_worked, "its threads worked")


def used_ns(pid: int) -> dict[int, int]:
    times = {thread: scheduled_ns(folder) for thread, folder in thread_folders(pid).items()}
    return {thread: ran_and_waited[0] for thread, ran_and_waited in times.items() if ran_and_waited is not None}


def stop(pid: int, placement: Placement) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_at_rest(pid), "it stops")
    placement.note_work()


def threads_of(pid: int) -> list[int]:
    return sorted(map(int, os.listdir(f"/proc/{pid}/task")))


@two_processors
def test_threads_that_work_have_a_processor_each_for_their_turn() -> None:
    with stopped_process(TWO_THREADS, 2) as (pid, placement):
        for _ in range(3):
            assert placement.working == 2
            placement.spread()
            places = [os.sched_getaffinity(thread) for thread in threads_of(pid)]
            assert sorted(map(len, places)) == [1, 1]
            assert places[0] != places[1]
            assert len(take_turn(pid, placement, 2)) == 1
            assert [os.sched_getaffinity(thread) for thread in threads_of(pid)] == [USABLE, USABLE]


@two_processors
def test_a_question_between_two_turns_changes_nothing() -> None:
    """The threads rest while they are asked, which says nothing of the turn that follows."""
    with stopped_process(TWO_THREADS, 2) as (pid, placement):
        take_turn(pid, placement, 2)
        for _ in range(3):
            placement.note_work()
            assert placement.working == 2
        assert len(take_turn(pid, placement, 2)) == 1


@two_processors
def test_a_thread_that_works_alone_may_go_where_it_likes() -> None:
    with stopped_process(ONE_THREAD, 1) as (pid, placement):
        assert placement.working == 1
        assert take_turn(pid, placement, 1) == USABLE


@two_processors
def test_threads_that_are_made_in_a_turn_may_go_where_they_like() -> None:
    """They inherit what the thread that makes them may use."""
    with stopped_process(NEW_THREADS, 0) as (pid, placement):
        take_turn(pid, placement, 0)
        for _ in range(3):
            assert take_turn(pid, placement, 0) == USABLE


def test_cores_come_before_their_second_threads_and_the_judges_processor_last_of_each() -> None:
    assert in_order_of_use(range(4), lambda processor: processor // 2, own=None) == [0, 2, 1, 3]
    assert in_order_of_use(range(4), lambda processor: processor % 2, own=None) == [0, 1, 2, 3]
    assert in_order_of_use(range(4), lambda processor: processor % 2, own=0) == [1, 0, 2, 3]
    assert in_order_of_use({1, 5}, lambda processor: processor, own=1) == [5, 1]
