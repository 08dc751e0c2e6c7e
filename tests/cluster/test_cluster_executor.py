"""Jobs over a real cluster of processes on loopback, whose judges are functions."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_jobs import PROBLEM, controller, drive, job, judged, run_all, silent
from cluster_processes import ClusterProcesses, interrupt
from distributed.versions import VersionMismatchWarning

from conditions import PATIENCE, wait_until
from kforge.cluster.address import parse_address
from kforge.cluster.dask_settings import quiet_client
from kforge.cluster.executor import ClusterExecutor
from kforge.cluster.inquiry import take_census
from kforge.errors import HarnessError, ProblemError
from kforge.types import Problem, Report, Settings

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def steady() -> Iterator[ClusterProcesses]:
    """A cluster that no test of this file does harm to: two workers, on two hosts by their names."""
    with ClusterProcesses() as processes:
        processes.add_workers(1, "--slots", "4", "--host", "one")
        processes.add_workers(1, "--slots", "4", "--host", "two")
        yield processes


# -- reports ---------------------------------------------------------------------------------------------------------


def test_each_job_has_its_own_report(steady: ClusterProcesses) -> None:
    jobs = [job(f"program {number}") for number in range(20)]
    for each, report in zip(jobs, run_all(steady, jobs), strict=True):
        assert isinstance(report, Report)
        assert report.job == each.id
        assert report.candidate == each.candidate.id
        assert report.verdict.evidence is not None
        assert report.verdict.evidence.candidate == each.candidate, "with its parent, which did not travel"
        assert report.verdict.evidence.problem == PROBLEM, "with its own path"


def test_what_is_done_is_told_in_the_loop_that_asked(cluster: ClusterProcesses) -> None:
    cluster.add_worker("--seconds", "0.2")
    told: list[tuple[str, int]] = []
    run_all(cluster, [job("told")], lambda words: told.append((words, threading.get_ident())))
    assert any(words.startswith("judging on ") for words, _ in told), told
    assert {thread for _, thread in told} == {threading.get_ident()}


def test_an_executor_is_used_from_one_loop_after_another(steady: ClusterProcesses) -> None:
    executor = ClusterExecutor(parse_address(steady.url), "cpu")
    first = drive(executor.run(job("in a first loop"), silent))
    second = drive(executor.run(job("in a second loop"), silent))
    drive(executor.close())
    assert (first.job, second.job) == ("in a first loop", "in a second loop")
    with pytest.raises(HarnessError, match="closed"):
        drive(executor.run(job("too late"), silent))


def test_a_broken_problem_is_a_problem_error(steady: ClusterProcesses) -> None:
    [error] = run_all(steady, [job("BROKEN")])
    assert isinstance(error, ProblemError)
    assert "the reference raises" in str(error)


def test_a_problem_is_looked_at_before_a_program_is_paid_for(steady: ClusterProcesses) -> None:
    async def work() -> None:
        async with controller(steady) as executor:
            await executor.check_problem(PROBLEM, Settings(), silent)
            with pytest.raises(ProblemError, match="the reference raises"):
                await executor.check_problem(Problem("broken", "class Model: BROKEN"), Settings(), silent)

    drive(work())


def test_equal_jobs_are_judged_once(cluster: ClusterProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    cluster.add_worker("--seconds", "1", "--log", str(log))
    reports = run_all(cluster, [job("the same", "mine"), job("the same", "yours"), job("another")])
    assert [report.job for report in reports] == ["mine", "yours", "another"]
    assert sorted(judged(log)) == ["# another", "# the same"]


def test_a_job_that_was_answered_is_judged_anew_when_asked_again(cluster: ClusterProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    cluster.add_worker("--log", str(log))

    async def work() -> None:
        async with controller(cluster) as executor:
            for number in range(3):
                await executor.run(job("again", f"try {number}"), silent)

    drive(work())
    assert judged(log) == ["# again"] * 3


# -- whose fault it is -----------------------------------------------------------------------------------------------


def test_what_one_machine_cannot_do_another_is_asked_for(cluster: ClusterProcesses) -> None:
    cluster.add_worker("--fault", "no space left on device", "--slots", "2", "--host", "full")
    cluster.add_worker("--host", "well", "--slots", "1")
    jobs = [job(f"program {number}") for number in range(6)]
    assert [report.job for report in run_all(cluster, jobs)] == [each.id for each in jobs]


def test_what_no_machine_can_do_is_an_error_that_names_the_last(steady: ClusterProcesses) -> None:
    error, report = run_all(steady, [job("FAULT"), job("a good one")])
    assert isinstance(error, HarnessError)
    assert "the device fell off the bus" in str(error)
    assert str(error).startswith(("one: ", "two: "))
    assert isinstance(report, Report)


def test_a_worker_that_is_killed_loses_nothing(cluster: ClusterProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = cluster.add_worker("--seconds", "60", "--log", str(log))

    async def work() -> Report:
        async with controller(cluster) as executor:
            running = asyncio.create_task(executor.run(job("long"), silent))
            await asyncio.to_thread(wait_until, lambda: judged(log) == ["# long"], "the first worker is at it")
            first.signal(signal.SIGKILL)
            await asyncio.to_thread(cluster.add_worker, "--log", str(log))
            report: Report = await running
            return report

    assert drive(work()).job == "long"
    assert judged(log) == ["# long"] * 2


def test_a_program_that_kills_its_workers_is_tried_on_two(cluster: ClusterProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    cluster.add_workers(4, "--log", str(log))
    results = run_all(cluster, [job("POISON"), *(job(f"good {number}") for number in range(8))])
    assert isinstance(results[0], HarnessError)
    assert "2 workers ended while they were at sample" in str(results[0])
    assert all(isinstance(report, Report) for report in results[1:]), results
    assert judged(log).count("# POISON") == 2
    assert sum(worker.process.poll() is None for worker in cluster.workers) == 2


def test_deaths_count_across_a_restart_of_the_scheduler(
    cluster: ClusterProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kforge.cluster.link._SETTLE_SECONDS", 1.0)
    log = tmp_path / "log"
    cluster.add_worker("--log", str(log), "--seconds", "2")

    async def work() -> None:
        async with controller(cluster) as executor:
            running = asyncio.create_task(executor.run(job("POISON"), silent))
            for deaths in range(2):
                ended = cluster.workers[deaths].process
                await asyncio.to_thread(wait_until, lambda ended=ended: ended.poll() is not None, "a worker ends")
                cluster.kill_scheduler()
                await asyncio.to_thread(cluster.start_scheduler)
                await asyncio.to_thread(cluster.add_worker, "--log", str(log), "--seconds", "2")
            with pytest.raises(HarnessError, match="2 workers ended"):
                await running
            assert (await executor.run(job("good"), silent)).job == "good"

    drive(work())
    assert judged(log).count("# POISON") == 2


def test_a_scheduler_that_is_restarted_loses_nothing(cluster: ClusterProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    cluster.add_workers(2, "--seconds", "0.3", "--log", str(log))
    jobs = [job(f"program {number}") for number in range(16)]

    async def work() -> list[Report]:
        async with controller(cluster) as executor:
            running = asyncio.gather(*(executor.run(each, silent) for each in jobs))
            for least in (2, 8):
                await asyncio.to_thread(
                    wait_until, lambda least=least: len(set(judged(log))) >= least, f"{least} are begun"
                )
                cluster.kill_scheduler()
                await asyncio.to_thread(cluster.start_scheduler)
            return await running

    assert [report.job for report in drive(work())] == [each.id for each in jobs]
    assert set(judged(log)) == {f"# {each.id}" for each in jobs}


def test_an_answer_that_was_ready_when_the_scheduler_was_gone_is_kept(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    cluster.add_worker("--seconds", "2", "--log", str(log))

    async def work() -> Report:
        async with controller(cluster) as executor:
            running = asyncio.create_task(executor.run(job("once"), silent))
            await asyncio.to_thread(wait_until, lambda: judged(log) == ["# once"], "the worker is at it")
            cluster.kill_scheduler()
            await asyncio.to_thread(cluster.start_scheduler)
            report: Report = await running
            return report

    assert drive(work()).job == "once"
    assert judged(log) == ["# once"], "it was judged once, and delivered when the scheduler was back"


# -- who waits for what ----------------------------------------------------------------------------------------------


def test_a_controller_with_few_jobs_is_not_kept_waiting_by_one_with_many(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    cluster.add_workers(2, "--seconds", "0.2", "--log", str(log))
    many = [job(f"many {number}") for number in range(60)]

    async def work() -> None:
        async with controller(cluster) as experiment, controller(cluster) as forge:
            running = asyncio.gather(*(experiment.run(each, silent) for each in many))
            await asyncio.to_thread(wait_until, lambda: len(judged(log)) >= 6, "the experiment has begun")
            for number in range(4):
                await forge.run(job(f"few {number}"), silent)
            done = len(judged(log))
            assert done < 45, f"{done} jobs were begun before 4 of another controller had their reports"
            await running

    drive(work())
    assert len(judged(log)) == 64


def test_jobs_of_a_controller_that_stops_are_cancelled(cluster: ClusterProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    cluster.add_worker("--seconds", "1", "--log", str(log))

    async def work() -> None:
        async with controller(cluster) as executor:
            running = [asyncio.create_task(executor.run(job(f"program {number}"), silent)) for number in range(10)]
            await asyncio.to_thread(wait_until, lambda: bool(judged(log)), "the first is begun")
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    drive(work())
    wait_until(lambda: not take_census(parse_address(cluster.url), fresh=True).controllers, "nothing is asked for")
    assert isinstance(run_all(cluster, [job("after them")])[0], Report)
    assert len(judged(log)) <= 4, "the one in hand, at most two beside it, and the new one"


def test_whoever_waits_is_told_what_is_missing(cluster: ClusterProcesses) -> None:
    cluster.add_worker("--platform", "metal")
    cluster.add_worker("--kforge", "0.0.1")
    told: list[str] = []

    async def work() -> Report:
        async with controller(cluster) as executor:
            running = asyncio.create_task(executor.run(job("patient"), told.append))
            await asyncio.to_thread(
                wait_until, lambda: any("0.0.1" in words and "metal" in words for words in told), f"told: {told}"
            )
            assert not running.done()
            await asyncio.to_thread(cluster.add_worker)
            report: Report = await running
            return report

    assert drive(work()).job == "patient"
    waiting = next(words for words in told if "0.0.1" in words)
    assert "no worker judges for cpu; there are: 1 for metal" in waiting
    assert "install one version on both sides" in waiting
    assert f"kforge worker --scheduler {cluster.url} --platforms cpu" in waiting


def test_a_run_stays_on_one_model_of_device(cluster: ClusterProcesses, tmp_path: Path) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    cluster.add_worker("--model", "large", "--slots", "2", "--log", str(large))
    cluster.add_worker("--model", "small", "--slots", "1", "--log", str(small))
    jobs = [job(f"program {number}") for number in range(8)]
    run_all(cluster, jobs)
    assert len(judged(large)) == 8
    assert not judged(small)

    async def resumed() -> None:
        async with controller(cluster) as executor:
            executor.keep_to_hardware("small")
            await asyncio.gather(*(executor.run(each, silent) for each in jobs))

    drive(resumed())
    assert len(judged(small)) == 8


def test_a_large_live_module_travels_and_dask_has_no_advice_about_it(cluster: ClusterProcesses, tmp_path: Path) -> None:
    file = tmp_path / "live"
    file.write_bytes(bytes(12 << 20))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    problem = replace(PROBLEM, payload=str(file), payload_hash=digest)
    cluster.add_worker()
    # Whatever is warned of is an error in these tests.
    [report] = run_all(cluster, [replace(job("large"), problem=problem)])
    assert isinstance(report, Report), report
    file.unlink()
    [error] = run_all(cluster, [replace(job("gone"), problem=problem)])
    assert isinstance(error, ProblemError), error
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet_client()
        warnings.warn("workers have another patch release of Python", VersionMismatchWarning, stacklevel=1)


# -- workers that stop -----------------------------------------------------------------------------------------------


def test_a_worker_that_is_interrupted_finishes_what_it_is_at(cluster: ClusterProcesses, tmp_path: Path) -> None:
    logs = [tmp_path / "first", tmp_path / "second"]
    held = [tmp_path / str(number) for number in range(4)]
    for file in held:
        file.touch()
    first = cluster.add_worker("--hold", str(tmp_path), "--log", str(logs[0]))
    jobs = [job(f"program {number}") for number in range(4)]

    async def work() -> list[Report]:
        async with controller(cluster) as executor:
            running = asyncio.gather(*(executor.run(each, silent) for each in jobs))
            await asyncio.to_thread(wait_until, lambda: bool(judged(logs[0])), "the first is begun")
            await asyncio.to_thread(cluster.add_worker, "--log", str(logs[1]))
            interrupt(first)
            await asyncio.to_thread(first.wait_for_line, "finishing 1 job; once more ends at once")
            for file in held:
                file.unlink()
            return await running

    assert [report.job for report in drive(work())] == [each.id for each in jobs]
    assert first.wait() == 0
    counts = Counter(judged(logs[0]) + judged(logs[1]))
    assert set(counts.values()) == {1}, "each was judged once: what was in hand was finished, the rest handed back"
    assert judged(logs[0]), "the first finished what it was at"


def test_a_worker_ends_at_once_with_whoever_started_it(cluster: ClusterProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = cluster.add_worker("--seconds", "3600", "--log", str(log))

    async def work() -> None:
        async with controller(cluster) as executor:
            running = asyncio.create_task(executor.run(job("nobody waits for it"), silent))
            await asyncio.to_thread(wait_until, lambda: bool(judged(log)), "it is begun")
            assert worker.process.stdin is not None
            worker.process.stdin.close()
            assert await asyncio.to_thread(worker.wait) == 130, "broken off in order, and not killed"
            running.cancel()

    drive(work())


def test_a_worker_that_is_interrupted_twice_hands_back_what_it_is_at(cluster: ClusterProcesses, tmp_path: Path) -> None:
    logs = [tmp_path / "first", tmp_path / "second"]
    first = cluster.add_worker("--seconds", "300", "--log", str(logs[0]))

    async def work() -> Report:
        async with controller(cluster) as executor:
            running = asyncio.create_task(executor.run(job("long"), silent))
            await asyncio.to_thread(wait_until, lambda: bool(judged(logs[0])), "it is begun")
            interrupt(first)
            await asyncio.to_thread(first.wait_for_line, "finishing")
            interrupt(first)
            await asyncio.to_thread(cluster.add_worker, "--log", str(logs[1]))
            report: Report = await running
            return report

    assert drive(work()).job == "long"
    assert first.wait() == 130
    assert judged(logs[1]) == ["# long"]


def test_a_worker_hands_no_key_to_what_it_starts(cluster: ClusterProcesses, tmp_path: Path) -> None:
    key, seen = "sk-a-key-that-nobody-else-may-see", tmp_path / "seen"
    names = {"OPENAI_API_KEY": key, "THEIR_TOKEN": key, "KFORGE_TEST_HARMLESS": "yes"}
    cluster.add_worker("--environment", str(seen), environment=names)
    run_all(cluster, [job("one")])
    inherited = seen.read_text()
    assert "KFORGE_TEST_HARMLESS=yes" in inherited
    assert key not in inherited


def test_nobody_waits_for_a_dead_scheduler_without_a_word(cluster: ClusterProcesses) -> None:
    told: list[str] = []

    async def work() -> None:
        cluster.kill_scheduler()
        async with controller(cluster) as executor:
            running = asyncio.create_task(executor.run(job("nobody"), told.append))
            await asyncio.to_thread(
                wait_until, lambda: any("no scheduler answers" in words for words in told), f"told: {told}"
            )
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    drive(work())
    assert "kforge cluster start" in next(words for words in told if "no scheduler answers" in words)


def test_nothing_is_left_behind() -> None:
    with ClusterProcesses() as processes:
        worker = processes.add_worker()
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        wait_until(lambda: worker.process.poll() is not None, "a worker ends with whoever started it")
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE
    for process in (worker, processes.scheduler):
        assert process is not None
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
