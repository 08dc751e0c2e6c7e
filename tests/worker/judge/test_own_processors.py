"""A judge that may run on some processors only is disturbed by who works on these, and by nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.worker.judge import own_processors as module
from kforge.worker.judge import runner_handle, scheduler_waits
from kforge.worker.judge.contention import ContentionMeter, is_contended
from kforge.worker.judge.own_processors import own_processors, read_processor_list, usable_processors
from kforge.worker.judge.runner_handle import RunnerHandle, RunnerLost
from kforge.worker.judge.scheduler_waits import MachineTimes, SchedulerTimes, TurnTimes
from others_work import others_work

SECOND = 1_000_000_000
TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
READ_SIBLINGS = module.siblings_of.__wrapped__
"""Without what it knows of this machine."""
COUNTS = st.lists(st.integers(0, 10**9), min_size=8, max_size=10)


def stat_of(rows: dict[int, list[int]]) -> bytes:
    """What the kernel's text is with these counts of each processor."""
    lines = [(f"cpu{number}", counts) for number, counts in rows.items()]
    whole = [sum(counts[place] for counts in rows.values()) for place in range(8)]
    text = "".join(f"{name} {' '.join(map(str, counts))}\n" for name, counts in [("cpu ", whole), *lines])
    return f"{text}intr 9 8 7\nctxt 5\nprocs_running 3\n".encode()


@pytest.mark.pure
@given(st.dictionaries(st.integers(0, 300), COUNTS, min_size=1, max_size=12), st.data())
def test_the_times_of_some_processors_are_theirs_alone(rows: dict[int, list[int]], data: Any) -> None:
    some = data.draw(st.frozensets(st.sampled_from(sorted(rows)), min_size=1))
    text = stat_of(rows)
    mine, rest = MachineTimes.read(text, some), MachineTimes.read(text, frozenset(rows) - some)
    busy = sum(sum(rows[number][place] for place in (0, 1, 2, 5, 6)) for number in some)
    assert mine == MachineTimes(busy * TICK, sum(rows[number][7] for number in some) * TICK)
    assert rest is not None
    whole = MachineTimes(mine.busy_ns + rest.busy_ns, mine.stolen_ns + rest.stolen_ns)
    assert MachineTimes.read(text) == MachineTimes.read(text, frozenset(rows)) == whole


@pytest.mark.pure
@given(*[st.integers(0, 10**12)] * 3, st.integers(0, 10**12))
def test_more_threads_do_not_make_more_of_what_another_machine_took(
    stolen: int, busy: int, passed: int, more: int
) -> None:
    began = MachineTimes(7, 5)
    lost = began.lost_ns(MachineTimes(7 + busy, 5 + stolen), passed)
    assert 0 <= began.lost_ns(MachineTimes(7 + busy + more, 5 + stolen), passed) <= lost <= min(stolen, passed)
    assert began.lost_ns(MachineTimes(7, 0), passed) == 0, "a count that goes back"


@pytest.mark.pure
@pytest.mark.parametrize(
    ("busy", "stolen", "waited", "expected"),
    [
        # Shares of a processor: nobody took anything, half of one, of each of four, all of it; and what the kernel
        # counted twice, as waiting and as stolen.
        (1.0, 0.0, 0.0, 5.0),
        (0.5, 0.5, 0.0, 10.0),
        (2.0, 2.0, 0.0, 10.0),
        (0.0, 1.0, 0.0, 50.0),
        (0.25, 0.75, 0.75, 50.0),
        (0.5, 0.25, 0.25, 10.0),
    ],
)
def test_a_limit_does_not_count_what_another_machine_took_up_to_ten_times_the_limit(
    monkeypatch: pytest.MonkeyPatch, busy: float, stolen: float, waited: float, expected: float
) -> None:
    """By a clock that waiting for the answer moves; none ever comes."""
    now = [100.0]

    def select(*asked: Any) -> tuple[list[Any], list[Any], list[Any]]:
        now[0] += asked[-1]
        return [], [], []

    def machine(processors: Any = None) -> MachineTimes:
        return MachineTimes(int(busy * now[0] * SECOND), int(stolen * now[0] * SECOND))

    clock = SimpleNamespace(monotonic=lambda: now[0])
    for place in (runner_handle, scheduler_waits):
        monkeypatch.setattr(place, "time", clock)
    monkeypatch.setattr(runner_handle, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(MachineTimes, "now", machine)
    monkeypatch.setattr(
        RunnerHandle, "scheduler_times", lambda self: SchedulerTimes({1: int(waited * now[0] * SECOND)}, 0)
    )
    nothing: Any = None
    with pytest.raises(RunnerLost, match="no answer after 5 s") as error:
        RunnerHandle(nothing, nothing)._wait(5.0)
    assert error.value.kind == "timeout"
    assert now[0] - 100.0 == pytest.approx(expected, abs=0.15)


@pytest.mark.pure
@pytest.mark.parametrize("text", [b"", b"cpu", b"cpu 1 2\ncpu0 1 2\n", b"cpu a b c d e f g h\ncpu0 a b c d e f g h\n"])
def test_a_text_that_does_not_tell_the_times_tells_nothing(text: bytes) -> None:
    assert MachineTimes.read(text) is None
    assert MachineTimes.read(text, frozenset({0})) is None


@pytest.mark.pure
def test_the_times_of_a_processor_that_is_not_told_are_unknown_and_not_zero() -> None:
    text = stat_of({0: [1] * 8, 10: [2] * 8})
    assert MachineTimes.read(text, frozenset({0, 1})) is None
    assert MachineTimes.read(text, frozenset({10})) == MachineTimes(10 * TICK, 2 * TICK)


@pytest.mark.pure
@given(st.sets(st.integers(0, 500), min_size=1))
def test_lists_of_processors_are_read_as_the_kernel_writes_them(numbers: set[int]) -> None:
    assert read_processor_list(",".join(map(str, sorted(numbers))) + "\n") == numbers
    assert read_processor_list(f"{min(numbers)}-{max(numbers)}") == set(range(min(numbers), max(numbers) + 1))


Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Has this process believe that it is on another machine."""

    def set_up(start: set[int], cores: list[set[int]], now: set[int] | None = None) -> None:
        online = sorted(number for core in cores for number in core)
        files = {"/proc/stat": stat_of({number: [1] * 8 for number in online})}
        for core in cores:
            for number in core:
                path = f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
                files[path] = ",".join(map(str, sorted(core))).encode()

        def content(path: str) -> bytes:
            if path not in files:
                raise FileNotFoundError(path)
            return files[path]

        monkeypatch.setattr(module, "content", content)
        monkeypatch.setattr(module, "siblings_of", READ_SIBLINGS)
        monkeypatch.setattr(module, "processors_at_start", lambda: frozenset(start))
        monkeypatch.setattr(module, "_allowed_now", lambda: frozenset(start if now is None else now))

    return set_up


@pytest.mark.pure
def test_who_may_use_whole_cores_only_has_these_for_himself(machine: Machine) -> None:
    machine({0}, [{0}, {1}])
    assert own_processors() == {0}
    machine({1, 5}, [{0, 4}, {1, 5}, {2, 6}])
    assert own_processors() == {1, 5}


@pytest.mark.pure
@pytest.mark.parametrize(
    ("start", "cores", "now"),
    [
        ({0, 1}, [{0}, {1}], None),
        ({1}, [{0, 4}, {1, 5}], None),
        ({0, 1, 4}, [{0, 4}, {1, 5}, {2, 6}], None),
        ({4, 5}, [{0}, {1}], None),
        ({0}, [{0}, {1}], {1}),
        ({0}, [{0}, {1}], {0, 1}),
        (set(), [{0}, {1}], None),
        ({0}, [], None),
    ],
    ids=["all", "half a core", "a core and a half", "renumbered", "moved", "widened", "not told", "no times"],
)
def test_otherwise_the_whole_machine_counts(
    machine: Machine, start: set[int], cores: list[set[int]], now: set[int] | None
) -> None:
    machine(start, cores, now)
    assert own_processors() is None


@pytest.mark.pure
def test_cores_that_the_kernel_does_not_tell_may_be_anybodys(machine: Machine, monkeypatch: Any) -> None:
    machine({0}, [{0}, {1}])
    monkeypatch.setattr(module, "siblings_of", lambda _: frozenset())
    assert own_processors() is None


def seen_of(own: frozenset[int] | None, blocks: list[tuple[list[int | None], str, float, float]]) -> float:
    """The others that a meter sees in one group of blocks, which it is told of."""
    meter = ContentionMeter(lambda: 0, own)
    for looks, side, waited, used in blocks:
        meter.note(looks, side, waited, used)
    meter.end_group()
    return meter.others[0]


@pytest.mark.pure
def test_a_judge_beside_it_on_other_processors_is_no_contention() -> None:
    blocks = [([1, 1], side, 0.01, 1.0) for side in "bccb"]
    assert is_contended(seen_of(None, blocks))
    assert not is_contended(seen_of(frozenset({0}), blocks))


@pytest.mark.pure
def test_a_program_that_leaves_its_processors_hides_nobody_who_is_on_them() -> None:
    waits_of_baseline = [([1, 1], "b", 0.5, 0.5), ([1, 1], "c", 0.0, 1.0)] * 2
    assert is_contended(seen_of(frozenset({0}), waits_of_baseline))


@pytest.mark.pure
def test_a_program_that_uses_more_than_its_processors_is_contended() -> None:
    assert is_contended(seen_of(frozenset({0}), [([0, 0], "b", 0.0, 1.0), ([0, 0], "c", 0.0, 1.9)]))
    assert not is_contended(seen_of(None, [([0, 0], "b", 0.0, 1.0), ([0, 0], "c", 0.0, 1.9)]))


SHARES = st.integers(0, 1000)


@pytest.mark.pure
@given(SHARES, SHARES, SHARES, SHARES, st.integers(1, 2000))
def test_what_a_runner_and_the_judge_take_from_each_other_nobody_else_took(
    waited: int, judge_waited: int, used: int, judge_used: int, passed: int
) -> None:
    begin = TurnTimes(SchedulerTimes({7: 50}, 10), 5, 20, 1000)
    end = TurnTimes(SchedulerTimes({7: 50 + waited}, 10 + used), 5 + judge_waited, 20 + judge_used, 1000 + passed)
    taken = begin.taken_ns(end, passed)
    assert 0 <= taken <= begin.lost_ns(end, passed) <= passed
    assert taken <= max(0, usable_processors() * passed - used - judge_used)
    assert begin.used_ns(end) == used
    untold = TurnTimes(SchedulerTimes(None, 10 + used), 5, 20, 1000 + passed)
    assert begin.lost_ns(untold, passed) == passed, "who does not know says the most that it can be"


@pytest.mark.pure
def test_what_neither_of_them_used_while_one_waited_somebody_else_took() -> None:
    begin = TurnTimes(SchedulerTimes({7: 0}, 0), 0, 0, 0)
    passed = 1000
    full = passed * usable_processors()
    assert begin.taken_ns(TurnTimes(SchedulerTimes({7: 400}, full - 500), 0, 500, passed), passed) == 0
    assert begin.taken_ns(TurnTimes(SchedulerTimes({7: 400}, full - 500), 0, 200, passed), passed) == 300


BLOCKS = st.lists(
    st.tuples(
        st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3),
        st.sampled_from("bc"),
        st.floats(0, 1),
        st.floats(0, 1),
    ),
    max_size=8,
)


@pytest.mark.pure
@given(BLOCKS)
def test_processors_of_ones_own_never_make_more_of_others_than_the_whole_machine_does(blocks: Any) -> None:
    assert seen_of(frozenset({3}), blocks) <= seen_of(None, blocks)
    everybody_waits = [(looks, side, 99.0, 0.0) for looks, side, _, _ in blocks]
    assert seen_of(frozenset({3}), everybody_waits) == seen_of(None, blocks)


PINNED = """
import json, os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
from test_contention import ONE_THREAD, REFERENCE
from kforge import Candidate, Problem, Settings
from kforge.worker.judge.judge import Judge
with Judge("cpu") as judge:
    settings = Settings(compile_baseline=False, timing_seconds=0.3, seeds=1)
    verdict = judge.evaluate(Problem("waves", REFERENCE), Candidate(sys.argv[2] + ONE_THREAD), settings)
print(json.dumps([verdict.outcome.value, verdict.timing.contended if verdict.timing else -1.0, verdict.detail]))
"""
SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
LEAVES = """
import os
os.sched_setaffinity(0, {OTHER})
"""


def judge_beside(spins_on: int | None, prefix: str = "") -> float:
    """The part that others took of a judge's time on the first processor, while somebody spins on one."""
    first = min(os.sched_getaffinity(0))
    spinner = None
    if spins_on is not None:
        spinner = subprocess.Popen([sys.executable, "-S", "-c", SPIN, str(spins_on)])
    try:
        folders = map(str, (Path(__file__).parent, Path(__file__).parents[2]))
        done = subprocess.run(
            [sys.executable, "-c", PINNED, str(first), prefix],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])]),
            },
            capture_output=True,
            text=True,
            timeout=900,
            check=True,
        )
    finally:
        if spinner is not None:
            spinner.kill()
            spinner.wait()
    outcome, contended, detail = json.loads(done.stdout.splitlines()[-1])
    assert outcome == "correct", detail
    return float(contended)


def two_cores() -> tuple[int, int]:
    """Two processors that are no halves of one core; skips where there are none."""
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("processors of one's own need Linux")
    first, *more = sorted(os.sched_getaffinity(0))
    if module.siblings_of(first) != {first}:
        pytest.skip(f"processor {first} is no whole core, or the kernel does not say")
    others = [number for number in more if number not in module.siblings_of(first)]
    if not others:
        pytest.skip("two cores are needed, and this process may use one")
    return first, others[0]


def skip_if_others_work_on(processor: int) -> None:
    """Skip where somebody else works on a processor that was to be quiet."""
    mine = frozenset({processor})
    since = MachineTimes.now(mine)
    time.sleep(1.0)
    now = MachineTimes.now(mine)
    assert since is not None
    assert now is not None
    used = (now.busy_ns - since.busy_ns + now.stolen_ns - since.stolen_ns) / 1e9
    if used > 0.05:
        pytest.skip(f"others use {used:.0%} of processor {processor}")


@pytest.mark.quiet
@pytest.mark.toolchain
def test_somebody_on_another_core_is_no_contention() -> None:
    mine, other = two_cores()
    with others_work(frozenset({mine})) as others:
        contended = judge_beside(other)
    if contended:
        others.skip_if_any()
        skip_if_others_work_on(mine)
    assert contended == 0.0


@pytest.mark.quiet
@pytest.mark.toolchain
def test_somebody_on_the_same_core_is() -> None:
    mine, _ = two_cores()
    assert judge_beside(mine) > 0.1


@pytest.mark.quiet
@pytest.mark.toolchain
def test_a_program_that_moves_to_another_core_does_not_hide_somebody_on_the_first() -> None:
    mine, other = two_cores()
    assert judge_beside(mine, LEAVES.replace("OTHER", str(other))) > 0.1
