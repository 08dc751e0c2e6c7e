"""The device is used by one holder at a time: among threads, among processes, and in turn."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conditions import PATIENCE, wait_until
from kforge.worker.judge import lease as lease_module
from kforge.worker.judge.lease import Lease

pytestmark = [pytest.mark.pure, pytest.mark.quiet]

SOURCE = Path(__file__).parents[3] / "src"

HOLDER = """
import pathlib, sys, time
from kforge.worker.judge.lease import Lease

path, log, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
lease = Lease(pathlib.Path(path))
for _ in range(count):
    with lease.hold():
        began = time.monotonic()
        time.sleep(seconds)
        ended = time.monotonic()
        with open(log, "a") as file:
            file.write(f"{began} {ended}\\n")
"""


def holder(lease: Path, log: Path, count: int, seconds: float) -> subprocess.Popen[bytes]:
    """A process that takes the lease so many times, again at once each time, and notes when it had it."""
    command = [sys.executable, "-c", HOLDER, str(lease), str(log), str(count), str(seconds)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SOURCE)})


def holds(log: Path) -> list[tuple[float, float]]:
    if not log.exists():
        return []
    # A line that is being written is not yet one.
    lines = log.read_text().rpartition("\n")[0].splitlines()
    return [(float(began), float(ended)) for began, ended in map(str.split, lines)]


class Clock:
    """What the leases of this process read, moved by the test alone: what is held does not depend on the machine."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleep = time.sleep

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease_module, "time", clock)
    return clock


def overlaps(spans: list[tuple[float, float]]) -> bool:
    ordered = sorted(spans)
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(ordered))


@pytest.mark.parametrize("kind", ["alone", "with a file", "no folder"])
def test_threads_take_turns(clock: Clock, tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("")
    path = {"alone": None, "with a file": tmp_path / "lease", "no folder": tmp_path / "file" / "below" / "lease"}[kind]
    lease, spans, together = Lease(path), [], threading.Barrier(4)

    def use() -> None:
        together.wait(PATIENCE)
        for _ in range(3):
            with lease.hold():
                began = time.monotonic()
                time.sleep(0.01)
                clock.now += 1.0
                spans.append((began, time.monotonic()))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(spans) == 12
    assert not overlaps(spans)
    assert lease.busy_seconds == 12.0


def test_busy_seconds_are_those_of_holding_and_not_of_waiting(clock: Clock, tmp_path: Path) -> None:
    first, second = Lease(tmp_path / "lease"), Lease(tmp_path / "lease")
    taken, told = threading.Event(), list[str]()

    def other_waits() -> list[str]:
        clock.now += 1.0
        return told

    def keep() -> None:
        with first.hold():
            taken.set()
            wait_until(other_waits, "the other says that it waits")

    thread = threading.Thread(target=keep)
    thread.start()
    assert taken.wait(PATIENCE)
    with second.hold(told.append):
        thread.join(PATIENCE)
        clock.now += 0.5
    assert first.busy_seconds >= 1.0
    assert second.busy_seconds == 0.5
    with pytest.raises(ValueError, match="broken off"), second.hold():
        raise ValueError("broken off")
    with second.hold():
        pass


def test_processes_keep_each_other_out_and_take_turns(tmp_path: Path) -> None:
    """A process that takes the device again at once does not keep it from one that waits."""
    path, log = tmp_path / "lease", tmp_path / "log"
    other = holder(path, log, 200, 0.1)
    try:
        wait_until(lambda: len(holds(log)) >= 2, "it has held it twice")
        lease, mine, between = Lease(path), [], []
        for _ in range(3):
            asked = time.monotonic()
            with lease.hold():
                began = time.monotonic()
                time.sleep(0.02)
                mine.append((began, time.monotonic()))
            between.append(sum(asked <= end <= began for _, end in holds(log)))
        assert other.poll() is None, "it had nothing left to take"
    finally:
        other.kill()
        other.wait()
    theirs = holds(log)
    assert not overlaps([*mine, *theirs])
    assert max(between) <= 3, "others held it again and again while this one waited"


def test_a_process_that_dies_gives_it_up(tmp_path: Path) -> None:
    path, log = tmp_path / "lease", tmp_path / "log"
    other = holder(path, log, 200, 0.05)
    wait_until(lambda: holds(log), "it has held it")
    other.kill()
    other.wait()
    taken = threading.Event()

    def take() -> None:
        with Lease(path).hold():
            taken.set()

    threading.Thread(target=take, daemon=True).start()
    assert taken.wait(PATIENCE)


def test_who_waits_for_long_is_told_once(clock: Clock, tmp_path: Path) -> None:
    first, second = Lease(tmp_path / "lease"), Lease(tmp_path / "lease")
    said: list[str] = []
    done = threading.Event()

    def wait() -> None:
        with second.hold(said.append):
            done.set()

    def is_told() -> list[str]:
        clock.now += 0.1
        return said

    with first.hold(said.append):
        assert said == []
        thread = threading.Thread(target=wait)
        thread.start()
        clock.now += 0.5
        time.sleep(0.1)
        assert said == [], "half a second is not long"
        wait_until(is_told, "it says that it waits")
        clock.now += 5.0
        time.sleep(0.1)
        assert not done.is_set()
    assert done.wait(PATIENCE)
    thread.join(PATIENCE)
    assert len(said) == 1
    assert "waiting for the device" in said[0]
    assert "another KForge process" in said[0]


def test_each_thread_knows_how_long_it_held_the_device() -> None:
    lease, seen = Lease(), {}

    def hold(name: str, seconds: float) -> None:
        for _ in range(2):
            with lease.hold():
                time.sleep(seconds)
        seen[name] = lease.thread_seconds

    threads = [threading.Thread(target=hold, args=args) for args in (("short", 0.01), ("long", 0.1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen["short"] >= 0.02
    assert seen["long"] >= 0.2
    assert lease.thread_seconds == 0.0
    assert lease.busy_seconds == pytest.approx(sum(seen.values())), "waiting for the other is not holding"


@pytest.mark.parametrize("kind", ["alone", "with a file"])
def test_who_lends_the_device_has_it_again_afterwards(clock: Clock, tmp_path: Path, kind: str) -> None:
    lease, order = Lease(None if kind == "alone" else tmp_path / "lease"), []

    def borrow() -> None:
        with lease.hold():
            order.append("borrowed")

    with lease.hold():
        thread = threading.Thread(target=borrow)
        thread.start()
        time.sleep(0.05)
        order.append("held")
        clock.now += 1.0
        with lease.lend():
            thread.join(PATIENCE)
            clock.now += 4.0
        order.append("held again")
        clock.now += 2.0
    assert order == ["held", "borrowed", "held again"]
    assert lease.thread_seconds == 3.0, "while it was lent it was not held"
    with lease.hold():
        pass


def test_a_lender_who_is_stopped_leaves_it_to_others() -> None:
    lease = Lease()
    with pytest.raises(KeyboardInterrupt), lease.hold(), lease.lend():
        raise KeyboardInterrupt
    with lease.hold():
        assert lease.thread_seconds >= 0
