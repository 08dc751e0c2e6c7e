"""Programs judged side by side, and one that needs the device alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import makers
from conditions import PATIENCE, wait_until
from kforge.errors import HarnessError, ProblemError
from kforge.types import Outcome, Verdict
from kforge.worker.judge import admission as admitting
from kforge.worker.judge import explain
from kforge.worker.judge import judge as judging
from kforge.worker.judge.admission import Admission, Visit
from kforge.worker.judge.judge import Judge

pytestmark = pytest.mark.cpu

SHORT = Verdict(Outcome.RUNTIME_ERROR, "OutOfMemoryError in __init__: CUDA out of memory. Tried to allocate 2.00 GiB.")
RIGHT = makers.verdict(1.5)


def test_who_wants_to_be_alone_waits_for_the_others_and_keeps_them_out() -> None:
    admission, inside, most = Admission(), 0, [0]
    seen: list[tuple[str, int]] = []
    guard = threading.Lock()

    def visit(name: str, alone: bool) -> None:
        nonlocal inside
        with admission.alone() if alone else admission.among_others():
            with guard:
                inside += 1
                most[0] = max(most[0], inside)
                seen.append((name, inside))
            time.sleep(0.05)
            with guard:
                inside -= 1

    threads = [threading.Thread(target=visit, args=(str(n), n % 3 == 2)) for n in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(seen) == 9
    assert all(count == 1 for name, count in seen if int(name) % 3 == 2)
    assert most[0] > 1, "the others do go side by side"


def test_a_visit_knows_whether_it_had_company() -> None:
    admission = Admission()
    with admission.among_others() as first:
        assert not first.had_company
        with admission.among_others() as second:
            assert second.had_company
        assert first.had_company
    with admission.among_others() as third:
        assert not third.had_company


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A judge whose device has memory of its own, as far as it knows."""
    with Judge("cpu") as made:
        monkeypatch.setattr(made, "_device", SimpleNamespace(has_own_memory=True))
        monkeypatch.setattr(made, "_platform", SimpleNamespace(empty_cache=lambda: emptied.append(1)))
        emptied: list[int] = []
        yield made


def judged(judge: Any, ends: list[Any], beside: bool) -> tuple[Any, int]:
    """What comes of a program that ends like this, one after another; and how often it was judged."""
    count = 0
    there, leave = threading.Event(), threading.Event()

    def once(visit: Visit | None) -> Verdict:
        nonlocal count
        count += 1
        if beside and count == 1:
            threading.Timer(0.2, leave.set).start()
        end = ends[count - 1]
        if isinstance(end, Exception):
            raise end
        return end

    if not beside:
        return judge._with_room(once, lambda verdict: verdict), count

    def stay() -> None:
        with judge._admission.among_others():
            there.set()
            leave.wait(PATIENCE)

    other = threading.Thread(target=stay)
    other.start()
    there.wait(PATIENCE)
    try:
        return judge._with_room(once, lambda verdict: verdict), count
    finally:
        other.join(PATIENCE)


def test_a_program_that_was_short_of_memory_beside_others_is_judged_again_alone(judge: Any) -> None:
    assert explain.is_short_of_memory(SHORT.detail)
    assert judged(judge, [SHORT, RIGHT], beside=True) == (RIGHT, 2)
    assert judged(judge, [HarnessError("the device ran out of memory while judging"), RIGHT], beside=True) == (RIGHT, 2)
    no_inputs = ProblemError("get_inputs() runs out of device memory (6 GiB are free)")
    assert judged(judge, [no_inputs, RIGHT], beside=True) == (RIGHT, 2)


def test_a_program_that_was_short_of_memory_alone_is_not_judged_again(judge: Any) -> None:
    assert judged(judge, [SHORT], beside=False) == (SHORT, 1)
    with pytest.raises(HarnessError, match="out of memory"):
        judged(judge, [HarnessError("the device ran out of memory while judging")], beside=False)


def test_other_faults_count_at_once(judge: Any) -> None:
    wrong = makers.verdict(outcome=Outcome.MISMATCH, detail="3 elements are wrong")
    assert judged(judge, [wrong], beside=True) == (wrong, 1)
    with pytest.raises(HarnessError, match="no sandbox"):
        judged(judge, [HarnessError("no sandbox")], beside=True)


class Programs:
    """Programs that come one after another, each on a thread, and leave when they are told to."""

    def __init__(self, admission: Admission, room: int = 100) -> None:
        self.admission, self.room, self.begun, self.whole = admission, room, [], []
        self._leave: dict[str, threading.Event] = {}
        self._threads: list[threading.Thread] = []

    def come(self, name: str, size: int, is_let_in: bool) -> None:
        self._leave[name] = threading.Event()
        count = len(self.admission._wanting_room)
        self._threads.append(threading.Thread(target=self._visit, args=(name, size), daemon=True))
        self._threads[-1].start()
        if is_let_in:
            wait_until(lambda: name in self.begun, f"{name} is let in")
        else:
            wait_until(lambda: len(self.admission._wanting_room) > count, f"{name} waits")

    def _visit(self, name: str, size: int) -> None:
        with self.admission.among_others() as there, self.admission.arrival():
            self.admission.wait_for_room(there, size, self.room)
            self.begun.append(name)
            self.admission.wait_for_the_rest(there, self.room)
            self.whole.append(name)
            self._leave[name].wait(PATIENCE)

    def leave(self, name: str) -> None:
        self._leave[name].set()

    def end(self) -> None:
        for event in self._leave.values():
            event.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_small_programs_come_before_one_that_keeps_all_others_out() -> None:
    programs = Programs(Admission())
    programs.come("first", 60, is_let_in=True)
    programs.come("large", 300, is_let_in=False)
    programs.come("small", 30, is_let_in=False)
    programs.leave("first")
    wait_until(lambda: "small" in programs.whole, "the small one, though it came later")
    assert programs.begun == ["first", "small"]
    programs.leave("small")
    wait_until(lambda: "large" in programs.whole, "the large one: nobody else has a share")
    programs.end()


def test_no_program_is_passed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admitting, "_MOST_PASSES", 1)
    programs = Programs(Admission())
    programs.come("first", 60, is_let_in=True)
    programs.come("large", 300, is_let_in=False)
    programs.come("passes", 30, is_let_in=False)
    programs.leave("first")
    wait_until(lambda: "passes" in programs.whole, "the first that passes")
    programs.come("waits", 30, is_let_in=False)
    programs.leave("passes")
    wait_until(lambda: "large" in programs.whole, "the large one")
    assert "waits" not in programs.begun
    programs.leave("large")
    wait_until(lambda: "waits" in programs.whole, "who came after it")
    programs.end()


def test_whoever_wants_to_be_alone_is_passed_by_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admitting, "_MOST_PASSES", 1)
    admission, order, leave = Admission(), [], threading.Event()

    def alone() -> None:
        with admission.alone():
            order.append("alone")

    def late() -> None:
        with admission.among_others():
            order.append("late")

    with admission.among_others():
        lonely = threading.Thread(target=alone)
        lonely.start()
        wait_until(lambda: len(admission._wanting_alone) == 1, "it waits")
        with admission.among_others():
            order.append("passes")
        last = threading.Thread(target=late)
        last.start()
        assert not leave.wait(0.1)
        assert order == ["passes"]
    lonely.join(PATIENCE)
    last.join(PATIENCE)
    assert order == ["passes", "alone", "late"]


def test_programs_are_compiled_where_there_is_no_room_to_time_them_all() -> None:
    programs = Programs(Admission(), room=88)
    programs.come("timed", 60, is_let_in=True)
    programs.come("compiled", 50, is_let_in=True)
    programs.come("too much", 50, is_let_in=False)
    assert programs.whole == ["timed"]
    programs.leave("timed")
    wait_until(lambda: len(programs.whole) == 2, "one of the others has the room that the first left")
    programs.end()
    assert sorted(programs.whole) == ["compiled", "timed", "too much"]


@given(
    sizes=st.lists(st.integers(1, 150), min_size=2, max_size=12),
    parts=st.lists(st.floats(0, 0.002), min_size=12, max_size=12),
)
@settings(max_examples=25, deadline=None)
def test_all_get_through_and_share_what_there_is(sizes: list[int], parts: list[float]) -> None:
    admission, whole, over = Admission(), [], []

    def visit(size: int, seconds: float) -> None:
        with admission.among_others() as there:
            with admission.arrival():
                admission.wait_for_room(there, size, 100)
            time.sleep(seconds)
            taken = admission.wait_for_the_rest(there, 100)
            if taken > 100 and taken > size:
                over.append((size, taken))
            time.sleep(seconds)
            admission.lower_share(there, 0.6)
            whole.append(size)

    threads = [threading.Thread(target=visit, args=each, daemon=True) for each in zip(sizes, parts, strict=False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(whole) == sorted(sizes)
    assert not over


def test_a_few_problems_at_once_are_read_or_wait_for_room() -> None:
    admission, inside, leave = Admission(), [], threading.Event()

    def arrive(number: int) -> None:
        with admission.arrival():
            inside.append(number)
            leave.wait(PATIENCE)

    threads = [threading.Thread(target=arrive, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(inside) == 4, "four are in")
    assert not leave.wait(0.1)
    assert len(inside) == 4
    leave.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(inside) == 9


def test_several_that_fit_are_there_at_once() -> None:
    admission, together = Admission(), threading.Barrier(3)

    def visit() -> None:
        with admission.among_others() as there:
            admission.wait_for_room(there, 30, 100)
            admission.wait_for_the_rest(there, 100)
            together.wait(PATIENCE)

    threads = [threading.Thread(target=visit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not together.broken


def test_a_share_that_is_lowered_lets_others_in() -> None:
    admission, entered = Admission(), threading.Event()

    def visit() -> None:
        with admission.among_others() as there:
            admission.wait_for_room(there, 60, 100)
            admission.wait_for_the_rest(there, 100)
            entered.set()

    with admission.among_others() as first:
        admission.wait_for_room(first, 80, 100)
        other = threading.Thread(target=visit)
        other.start()
        assert not entered.wait(0.2)
        admission.lower_share(first, 0.5)
        assert entered.wait(PATIENCE)
        other.join(PATIENCE)


def test_whoever_is_let_in_is_told_what_all_inside_have() -> None:
    admission = Admission()
    with admission.among_others() as first:
        assert admission.wait_for_room(first, 30, 100) == 30
        assert admission.has_whole_share(first)
        with admission.among_others() as second:
            assert admission.wait_for_room(second, 40, 100) < 70
            assert not admission.has_whole_share(second)
            assert admission.wait_for_the_rest(second, 100) == 70


def session_that_needs(held: int, gained: int = 0) -> Any:
    inputs, cases = SimpleNamespace(working_bytes=held), SimpleNamespace(gained_bytes=gained)
    made = SimpleNamespace(workloads=[SimpleNamespace(timed_inputs=inputs, cases=cases)], is_closed=False)
    made.close = lambda: setattr(made, "is_closed", True)
    return made


@pytest.mark.parametrize(("needed", "closed"), [(10, 0), (70, 1), (110, 2), (200, 2)])
def test_problems_that_nobody_is_judged_on_give_way_the_oldest_first(judge: Any, needed: int, closed: int) -> None:
    idle = [session_that_needs(8 << 30, 0), session_that_needs(1, 1)]
    used = session_that_needs(50 << 30)
    judge._sessions.update({("used",): used, ("old",): idle[0], ("new",): idle[1]})
    judge._in_use[id(used)] = 1
    judge._device.memory_bytes = 100 << 30
    judge._clear_room(needed << 30)
    assert [session.is_closed for session in (*idle, used)] == [closed > 0, closed > 1, False]
    judge._sessions.clear()


def test_what_a_program_needs_is_by_its_inputs_or_by_what_a_call_takes() -> None:
    small = judging._needed_bytes(session_that_needs(1, 1))
    assert judging._needed_bytes(session_that_needs(4 << 30, 1)) > small + (4 << 30)
    attention = judging._needed_bytes(session_that_needs(1, 17 << 30))
    assert attention > small + 4 * (17 << 30), "the judge in float64, two baselines and the program"
