"""Several judges: which device gets a job, and a batch shared out among them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import makers
from conditions import PATIENCE
from kforge import Candidate, Problem, Settings
from kforge.errors import HarnessError, PluginAbsent
from kforge.execution.base import run_apart
from kforge.execution.local import LocalExecutor
from kforge.types import Job, Report
from kforge.worker import fault_pause
from kforge.worker import jobs as batch
from kforge.worker import judges as judging
from kforge.worker.fault_pause import FaultPauses, alone_seconds
from kforge.worker.jobs import Done, run_jobs

pytestmark = pytest.mark.cpu


class Host:
    """A machine of some devices, usually two, whose judges do as each test says."""

    name = "twin"
    builds_apart = True

    def __init__(self) -> None:
        self.absent = ""
        self.models = ["a GPU", "a GPU"]
        self.calls: list[tuple[int, str]] = []
        """(device, job) in the order they began."""
        self.made: list[StubJudge] = []
        self.behaviour: Any = lambda judge, job: None
        self.lock = threading.Lock()

    def unavailable_reason(self) -> str:
        return self.absent

    def devices(self) -> tuple[int, ...]:
        return tuple(range(len(self.models)))

    def identity(self, number: int) -> str:
        return f"uuid-{number}"

    def facts(self, number: int = 0) -> dict[str, str]:
        return {"processor": self.models[number]}


class StubJudge:
    def __init__(self, host: Host, number: int) -> None:
        self.number = number
        self.lease = SimpleNamespace(busy_seconds=0.0)
        self.closed = threading.Event()
        self._host = host
        host.made.append(self)

    def report(self, job: Job, progress: Any) -> Report:
        with self._host.lock:
            self._host.calls.append((self.number, job.id))
        progress("looking")
        self._host.behaviour(self, job)
        return Report(job.id, job.problem.name, job.candidate.id, "twin", makers.verdict(1.5))

    def session(self, problem: Problem, settings: Settings) -> None:
        self._host.calls.append((self.number, problem.name))
        self._host.behaviour(self, None)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    made = Host()
    monkeypatch.setattr(judging.registry, "load", lambda kind, name: made)
    monkeypatch.setattr(judging, "Judge", lambda platform, number: StubJudge(made, number))
    yield made
    for judge in made.made:
        judge.closed.set()


def job(name: str, number: int = 0) -> Job:
    problem = Problem(name, f"# {name}")
    return Job(f"{name}{number}", problem, Candidate(f"# {name} {number}", "twin"), Settings())


# -- which device ----------------------------------------------------------------------------------------------------


def test_a_problem_stays_with_the_device_that_knows_it(host: Host) -> None:
    taken, go_on = threading.Event(), threading.Event()

    def behaviour(judge: StubJudge, work: Job) -> None:
        if work.problem.name == "a":
            taken.set()
            assert go_on.wait(PATIENCE)

    host.behaviour = behaviour
    with judging.Judges("twin") as judges:
        thread = threading.Thread(target=judges.report, args=(job("a"),))
        thread.start()
        assert taken.wait(PATIENCE)
        judges.report(job("b", 0))
        go_on.set()
        thread.join(PATIENCE)
        for number in (1, 2):
            judges.report(job("b", number))
            judges.report(job("a", number))
    where = {name: device for device, name in host.calls}
    assert [where[f"a{number}"] for number in range(3)] == [0, 0, 0]
    assert [where[f"b{number}"] for number in range(3)] == [1, 1, 1], "both were idle: it belongs where it was"


def test_an_idle_device_takes_over_from_one_that_is_at_work(host: Host) -> None:
    together = threading.Barrier(2)
    host.behaviour = lambda judge, work: together.wait(PATIENCE)
    with judging.Judges("twin") as judges:
        threads = [threading.Thread(target=judges.report, args=(job("a", number),)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert sorted(device for device, _ in host.calls) == [0, 1]
    assert len(host.made) == 2


def test_where_all_are_at_work_the_least_loaded_gets_the_next(host: Host) -> None:
    together = threading.Barrier(4)
    host.behaviour = lambda judge, work: together.wait(PATIENCE)
    with judging.Judges("twin") as judges:
        threads = [threading.Thread(target=judges.report, args=(job(name),)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert sorted(device for device, _ in host.calls) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("models", "apart_from", "where"),
    [
        (["a", "a"], "uuid-0", 1),
        (["a", "a"], "uuid-1", 0),
        (["a", "b", "a"], "uuid-0", 2),
        (["a", "b"], "uuid-0", 0),
        (["a"], "uuid-0", 0),
        (["a", "a"], "that of another machine's device", 0),
    ],
)
def test_a_second_measurement_is_made_on_another_device_of_the_same_model(
    host: Host, models: list[str], apart_from: str, where: int
) -> None:
    host.models = models
    with judging.Judges("twin") as judges:
        judges.report(job("a", 0))
        judges.report(job("a", 1), apart_from=apart_from)
        judges.report(job("a", 2))
    assert host.calls == [(0, "a0"), (where, "a1"), (0, "a2")], "the problem stays where it was"


def test_where_a_device_is_lost_another_one_does_its_work(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.models = ["a GPU", "a GPU", "another GPU"]

    def behaviour(judge: StubJudge, work: Job) -> None:
        if judge.number == 0:
            raise HarnessError("the GPU has fallen off the bus")

    host.behaviour = behaviour
    with judging.Judges("twin") as judges:
        for number in range(3):
            assert judges.report(job("a", number)).job == f"a{number}"
        judges.report(job("b"))
        assert host.calls == [(0, "a0"), (1, "a0"), (1, "a1"), (1, "a2"), (1, "b0")], "it is left alone"
        later = time.monotonic() + 20
        monkeypatch.setattr(judging.time, "monotonic", lambda: later)
        host.behaviour = lambda judge, work: None
        judges.report(job("c"))
    assert host.calls[-1] == (0, "c0"), "until it may be well again"


def test_a_pause_grows_with_each_fault_up_to_a_bound() -> None:
    pauses = [alone_seconds(number) for number in range(40)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (15, 30, 300)


def test_work_that_is_done_ends_a_pause_and_forgets_the_faults_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(fault_pause.time, "monotonic", lambda: now)
    pauses = FaultPauses()

    def is_held_after(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return pauses.holds("it")

    assert not pauses.holds("it")
    pauses.begin("it")
    assert is_held_after(14)
    assert not is_held_after(2)
    pauses.begin("it")
    assert is_held_after(29), "it was at fault twice"
    pauses.end("it")
    assert not pauses.holds("it")
    pauses.begin("it")
    assert not is_held_after(16), "the first fault again"


def test_a_problem_is_checked_where_a_device_is_well(host: Host) -> None:
    def behaviour(judge: StubJudge, work: Job) -> None:
        if judge.number == 0:
            raise HarnessError("the GPU has fallen off the bus")

    host.behaviour = behaviour
    with judging.Judges("twin") as judges:
        for name in "abc":
            judges.check(Problem(name, f"# {name}"), Settings())
    assert host.calls == [(0, "a"), (1, "a"), (1, "b"), (1, "c")]


@pytest.mark.parametrize(("models", "calls"), [(["a", "b"], 1), (["a", "a"], 2), (["a"], 1)])
def test_what_no_device_can_do_is_an_error(host: Host, models: list[str], calls: int) -> None:
    def behaviour(judge: StubJudge, work: Job) -> None:
        raise HarnessError(f"no room on {judge.number}")

    host.models, host.behaviour = models, behaviour
    with judging.Judges("twin") as judges, pytest.raises(HarnessError, match=f"no room on {calls - 1}"):
        judges.report(job("a"))
    assert len(host.calls) == calls


def test_what_ends_with_the_judges_is_not_tried_again(host: Host) -> None:
    judges = judging.Judges("twin")

    def behaviour(judge: StubJudge, work: Job) -> None:
        judges.close()
        raise HarnessError("the judge was closed before it was through")

    host.behaviour = behaviour
    with pytest.raises(HarnessError, match="closed"):
        judges.report(job("a"))
    assert len(host.calls) == 1


def test_a_local_executor_judges_again_on_another_device(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = LocalExecutor("twin", builders=1)
    first = replace(makers.verdict(1.5), evidence=makers.evidence(identity="uuid-0"))

    async def work() -> None:
        await executor.run(job("a", 0), lambda _: None)
        await run_apart(executor, job("a", 1), lambda _: None, first)
        await executor.close()

    asyncio.run(work())
    assert host.calls == [(0, "a0"), (1, "a1")]


def test_a_job_that_fails_leaves_its_device_idle(host: Host) -> None:
    def fail(judge: StubJudge, work: Job) -> None:
        raise HarnessError("no runner")

    host.models, host.behaviour = ["a GPU"], fail
    with judging.Judges("twin") as judges:
        for _ in range(3):
            with pytest.raises(HarnessError):
                judges.report(job("a"))
    assert [device for device, _ in host.calls] == [0, 0, 0]
    assert len(host.made) == 1


def test_only_the_devices_named_are_used(host: Host) -> None:
    with judging.Judges("twin", (1,)) as judges:
        assert judges.devices == (1,)
        for name in "abc":
            judges.report(job(name))
        assert [judge.closed.is_set() for judge in host.made] == [False]
    assert {device for device, _ in host.calls} == {1}
    assert [judge.closed.is_set() for judge in host.made] == [True]


def test_a_device_that_is_not_there_is_an_error_that_lists_those_there_are(host: Host) -> None:
    with pytest.raises(PluginAbsent, match=r"platform twin: no device 5; there are: 0, 1$"):
        judging.Judges("twin", (0, 5))


def test_a_platform_that_is_absent_says_why(host: Host) -> None:
    host.absent = "no driver (install one)"
    with pytest.raises(PluginAbsent, match=r"platform twin: no driver \(install one\)"):
        judging.Judges("twin")


def test_the_busy_share_is_that_of_all_devices(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(judging.time, "monotonic", lambda: now[0])
    judges = judging.Judges("twin")
    judges.report(job("a"))
    now[0] = 110.0
    host.made[0].lease.busy_seconds = 8.0
    assert judges.busy_share() == pytest.approx(0.4)
    assert judging.Judges("twin", (0,)).busy_share() == 0.0


def test_where_building_disturbs_the_timing_one_program_is_in_hand(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, gigabytes, builders in ((1, 64, 2), (8, 64, 6), (64, 64, 12), (64, 16, 5), (64, 2, 2)):
        sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (gigabytes << 30) // 4096}
        monkeypatch.setattr(judging.os, "cpu_count", lambda count=processors: count)
        monkeypatch.setattr(judging.os, "sysconf", sizes.__getitem__)
        assert judging.usual_builders("twin") == builders
    host.builds_apart = False
    assert judging.usual_builders("twin") == 1


# -- a batch ---------------------------------------------------------------------------------------------------------


def run(jobs: list[Job], out: Path, devices: tuple[int, ...] = (), told: list[Done] | None = None) -> list[Done]:
    tell = told.append if told is not None else (lambda done: None)
    return run_jobs(jobs, out, "twin", tell, builders=2, devices=devices)


def test_every_job_is_told_once_and_reported(host: Host, tmp_path: Path) -> None:
    jobs = [job(name, number) for number in range(4) for name in "abc"]
    host.behaviour = lambda judge, work: time.sleep(0.01 + 0.004 * int(work.id[-1]))
    told: list[Done] = []
    done = run(jobs, tmp_path, told=told)
    assert sorted(item.job.id for item in told) == sorted(item.id for item in jobs)
    assert told == done
    assert all(item.report is not None and item.report.job == item.job.id for item in told)
    assert {path.stem for path in tmp_path.glob("*.json")} == {item.id for item in jobs}
    assert {device for device, _ in host.calls} == {0, 1}
    assert all(judge.closed.is_set() for judge in host.made)


def test_jobs_of_one_problem_follow_each_other(host: Host, tmp_path: Path) -> None:
    """Two are in hand at once: they wait for each other, so that what was begun together shows."""
    together = threading.Barrier(2)
    host.behaviour = lambda judge, work: together.wait(PATIENCE)
    run([job(name, number) for number in range(2) for name in "bac"], tmp_path, devices=(0,))
    begun = [name[0] for _, name in host.calls]
    assert begun == ["b", "b", "a", "a", "c", "c"]


def test_as_many_programs_are_in_hand_as_there_are_builders_for_each_device(host: Host, tmp_path: Path) -> None:
    together, most, at_once = threading.Barrier(4), [0], [0]

    def behaviour(judge: StubJudge, work: Job) -> None:
        with host.lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        together.wait(PATIENCE)
        with host.lock:
            at_once[0] -= 1
        together.wait(PATIENCE)

    host.behaviour = behaviour
    run([job(name, number) for number in range(2) for name in "abcd"], tmp_path)
    assert most == [4]


def test_an_error_in_one_job_does_not_lose_the_others(host: Host, tmp_path: Path) -> None:
    def behaviour(judge: StubJudge, work: Job) -> None:
        if work.id == "a1":
            raise ZeroDivisionError("by zero")
        if work.id == "b0":
            raise HarnessError("the device ran out of memory")

    host.behaviour = behaviour
    told: list[Done] = []
    run([job(name, number) for number in range(3) for name in "ab"], tmp_path, told=told)
    found = {item.job.id: item for item in told}
    assert len(told) == len(found) == 6
    assert found["a1"].report is None
    assert found["a1"].error == "internal error, please report it: ZeroDivisionError: by zero"
    assert found["b0"].error == "the device ran out of memory"
    assert all(item.report for name, item in found.items() if name not in ("a1", "b0"))
    assert {path.stem for path in tmp_path.glob("*.json")} == set(found) - {"a1", "b0"}


def test_breaking_off_closes_the_judges_and_begins_no_more(host: Host, tmp_path: Path) -> None:
    first = threading.Event()

    def behaviour(judge: StubJudge, work: Job) -> None:
        if not first.is_set():
            first.set()
            return
        assert judge.closed.wait(PATIENCE), "nobody closed it"
        raise HarnessError("broken off")

    def interrupted(done: Done) -> None:
        raise KeyboardInterrupt

    host.behaviour = behaviour
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_jobs([job("a", number) for number in range(9)], tmp_path, "twin", interrupted, builders=2, devices=(0,))
    assert time.monotonic() - began < PATIENCE / 2
    assert [judge.closed.is_set() for judge in host.made] == [True]
    time.sleep(0.05)
    assert len(host.calls) <= 3


def test_a_report_that_cannot_be_written_ends_the_batch_with_its_reason(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(batch, "write_json", full)
    caught: list[BaseException] = []

    def run_it() -> None:
        try:
            run([job("a"), job("b")], tmp_path)
        except OSError as error:
            caught.append(error)

    thread = threading.Thread(target=run_it, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert [str(error) for error in caught] == ["[Errno 28] No space left on device"]
    assert all(judge.closed.is_set() for judge in host.made)


def test_at_the_end_the_busy_share_is_told(host: Host, tmp_path: Path) -> None:
    def behaviour(judge: StubJudge, work: Job) -> None:
        time.sleep(0.02)
        judge.lease.busy_seconds += 1000.0

    host.behaviour = behaviour
    shares: list[float] = []
    run_jobs([job("a")], tmp_path, "twin", lambda done: None, tell_busy_share=shares.append, builders=1)
    assert len(shares) == 1
    assert shares[0] > 1


@given(st.lists(st.integers(0, 4), max_size=24), st.integers(0, 8))
def test_a_problem_is_opened_ahead_and_its_jobs_stay_together(which: list[int], ahead: int) -> None:
    problems = [Problem(f"problem {number}", f"source {number}") for number in range(5)]
    jobs = [Job(str(place), problems[number], Candidate("x", "twin")) for place, number in enumerate(which)]
    ordered = batch.order_by_problem(jobs, ahead)
    assert sorted(job.id for job in ordered) == sorted(job.id for job in jobs)
    firsts = {}
    for job in jobs:
        firsts.setdefault(job.problem.id, job.id)
    for job in jobs:
        mine = [item.id for item in ordered if item.problem.id == job.problem.id]
        assert mine == [item.id for item in jobs if item.problem.id == job.problem.id]
    rest = [job.problem.id for job in ordered if job.id not in firsts.values()]
    changes = sum(one != two for one, two in pairwise(rest))
    assert changes == max(0, len(set(rest)) - 1)
    if not ahead:
        assert [job.problem.id for job in ordered] == [one for one in firsts for job in jobs if job.problem.id == one]


def test_the_next_problem_is_opened_while_this_one_is_judged() -> None:
    jobs = [
        Job(f"{name}{number}", Problem(name, name), Candidate("x", "twin")) for name in "abc" for number in range(4)
    ]
    assert [job.id for job in batch.order_by_problem(jobs, 3)] == [
        *("a0", "a1", "b0", "a2", "a3", "b1", "c0", "b2", "b3", "c1", "c2", "c3")
    ]
