"""What a controller holds: nothing is lost, nothing counts twice, and a window is all that is out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.cluster.job_message import JobRequest
from kforge.cluster.job_queue import JobQueue, QueuedJob

pytestmark = pytest.mark.pure


def entry(key: str) -> QueuedJob:
    return QueuedJob(JobRequest(b"", "cpu", key, key, key), "a model", key, [lambda _: None])


def filled(count: int) -> JobQueue:
    made = JobQueue()
    for number in range(count):
        made.add(entry(str(number)))
    return made


def test_the_nth_job_that_is_out_has_the_priority_minus_n() -> None:
    jobs = filled(5)
    out = list(jobs.hand_out(3))
    assert [(job.key, priority) for job, priority in out] == [("0", -1), ("1", -2), ("2", -3)]
    assert not list(jobs.hand_out(3))
    jobs.remove(out[1][0])
    assert [(job.key, priority) for job, priority in jobs.hand_out(3)] == [("3", -3)]


def test_equal_jobs_are_one() -> None:
    jobs = JobQueue()
    first = jobs.add(entry("same"))
    assert jobs.add(entry("same")) is first
    assert len(first.listeners) == 2
    assert [job for job, _ in jobs.hand_out(9)] == [first]


def test_what_the_scheduler_lost_comes_first_again() -> None:
    jobs = filled(4)
    [(first, _), _] = list(jobs.hand_out(2))
    jobs.take_back(first)
    jobs.take_back(first)
    assert jobs.in_hand == 1
    assert [job.key for job, _ in jobs.hand_out(9)] == ["0", "2", "3"]


def test_a_second_answer_finds_nothing_to_answer() -> None:
    jobs = filled(1)
    [(job, _)] = list(jobs.hand_out(1))
    for _ in range(3):
        jobs.remove(job)
    jobs.take_back(job)
    assert (len(jobs), jobs.in_hand) == (0, 0)
    again = jobs.add(entry("0"))
    jobs.remove(job)
    assert jobs.get("0") is again, "an answer to an earlier asking is none to a later one"


@given(st.lists(st.tuples(st.sampled_from("aort"), st.integers(0, 5)), max_size=60), st.integers(0, 4))
def test_whatever_happens_the_window_holds_and_no_job_is_lost(steps: list[tuple[str, int]], window: int) -> None:
    jobs, alive, out = JobQueue(), {}, {}
    for what, number in steps:
        key = str(number)
        if what == "a":
            alive.setdefault(key, jobs.add(entry(key)))
        elif what == "o":
            out.update({job.key: job for job, _ in jobs.hand_out(window)})
        elif what == "r" and key in alive:
            jobs.remove(alive.pop(key))
            out.pop(key, None)
        elif what == "t" and key in out:
            jobs.take_back(out.pop(key))
        assert jobs.in_hand == len(out) <= window
        assert {job.key for job in jobs} == set(alive)
    rest = {job.key for job, _ in jobs.hand_out(1000)}
    assert rest | set(out) == set(alive)
    assert not rest & set(out)
