"""Work beside a measurement: it waits while quiet is wanted, and what takes long is frozen and not waited for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from conditions import PATIENCE, wait_until
from kforge.worker.judge.background import Background, Freeze

pytestmark = pytest.mark.pure


class Frozen:
    """Something that can be frozen, and counts how often it was."""

    def __init__(self, stands: bool = True) -> None:
        self.now = False
        self.times = 0
        self._stands = stands

    @contextlib.contextmanager
    def freeze(self) -> Iterator[bool]:
        self.now = True
        self.times += 1
        yield self._stands
        self.now = False


def test_quiet_waits_for_work_that_is_under_way_and_lets_none_begin() -> None:
    background, order = Background(), []
    began = threading.Event()

    def work() -> None:
        with background.work():
            began.set()
            time.sleep(0.2)
            order.append("worked")

    def later() -> None:
        with background.work():
            order.append("began later")

    first, second = threading.Thread(target=work), threading.Thread(target=later)
    first.start()
    began.wait(5)
    with background.quiet() as rests:
        assert rests
        order.append("quiet")
        second.start()
        time.sleep(0.1)
    second.join(5)
    assert order == ["worked", "quiet", "began later"]


@pytest.mark.parametrize("stands", [True, False])
def test_long_work_is_frozen_and_not_waited_for(stands: bool) -> None:
    background, frozen = Background(), Frozen(stands)
    began, end, order = threading.Event(), threading.Event(), []

    def work() -> None:
        with background.work():
            with background.long_work(frozen.freeze):
                began.set()
                end.wait(5)
            order.append("went on")

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(5)
    with background.quiet() as rests:
        assert rests is stands
        assert frozen.now
        assert background.is_frozen
        # It may have been done when it was frozen: what comes after waits all the same.
        end.set()
        time.sleep(0.1)
        assert order == []
    thread.join(5)
    assert order == ["went on"]
    assert not frozen.now
    with background.quiet() as rests:
        assert rests
    assert frozen.times == 1


def test_a_measurement_keeps_long_work_still_and_lets_short_work_go_on() -> None:
    background, frozen = Background(), Frozen()
    began, end, order = threading.Event(), threading.Event(), []

    def work() -> None:
        with background.work(), background.long_work(frozen.freeze):
            began.set()
            end.wait(5)

    def short() -> None:
        with background.work():
            order.append("short")

    long, other = threading.Thread(target=work), threading.Thread(target=short)
    long.start()
    began.wait(5)
    with background.calm() as stands:
        assert stands
        other.start()
        other.join(5)
        assert order == ["short"]
        with background.quiet():
            assert frozen.now
        assert frozen.now, "a second look within a measurement ends before it"
    assert not frozen.now
    assert not background.is_frozen
    end.set()
    long.join(5)


def test_who_is_stopped_on_the_way_leaves_nothing_frozen() -> None:
    background, frozen = Background(), Frozen()
    end = threading.Event()

    @contextlib.contextmanager
    def broken() -> Iterator[bool]:
        raise KeyboardInterrupt
        yield True

    def work(freeze: Freeze, began: threading.Event) -> None:
        with background.work(), background.long_work(freeze):
            began.set()
            end.wait(5)

    threads = []
    for freeze in (frozen.freeze, broken):
        began = threading.Event()
        threads.append(threading.Thread(target=work, args=(freeze, began)))
        threads[-1].start()
        began.wait(5)
    with pytest.raises(KeyboardInterrupt), background.calm():
        pass
    assert frozen.times == 1
    assert not frozen.now
    end.set()
    for thread in threads:
        thread.join(5)
    with background.quiet() as rests:
        assert rests


def test_long_work_does_not_begin_while_quiet_is_wanted() -> None:
    background, frozen, order = Background(), Frozen(), []
    working, go = threading.Event(), threading.Event()

    def work() -> None:
        with background.work():
            working.set()
            go.wait(PATIENCE)
            with background.long_work(frozen.freeze):
                order.append("long work")

    def let_go() -> None:
        wait_until(lambda: background._quiet_wanted, "quiet is wanted")
        go.set()

    thread, other = threading.Thread(target=work), threading.Thread(target=let_go)
    thread.start()
    assert working.wait(PATIENCE)
    other.start()
    with background.quiet() as rests:
        assert rests, "it comes to rest between two parts of its work"
        time.sleep(0.1)
        assert order == []
    thread.join(PATIENCE)
    other.join(PATIENCE)
    assert order == ["long work"]
    assert frozen.times == 0
