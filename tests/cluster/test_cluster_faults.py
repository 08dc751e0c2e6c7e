"""Networks that pause, devices that are slow, disks that are full: on a real cluster of processes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_jobs import controller, drive, job, judged, run_all, silent
from cluster_processes import ClusterProcesses, Process

from conditions import wait_until
from kforge.cluster.address import parse_address
from kforge.cluster.exchange import SchedulerExchange
from kforge.cluster.inquiry import take_census
from kforge.errors import HarnessError
from kforge.run.quiet_verdict import judge_until_quiet
from kforge.types import Candidate, Job, Problem, Report, Settings

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]

_SILENT_SECONDS = 6.0
"""After which the scheduler of these tests takes a worker for gone; Dask takes no less than five."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterProcesses]:
    """A cluster that takes a worker for gone after seconds, and not after minutes."""
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", f"{_SILENT_SECONDS}s")
    with ClusterProcesses() as processes:
        yield processes


def workers_there(cluster: ClusterProcesses) -> int:
    return len(take_census(parse_address(cluster.url), fresh=True).workers)


def cut_off(process: Process) -> None:
    """Nothing of a process is heard any more, and it hears nothing: what a network that pauses looks like."""
    process.signal(signal.SIGSTOP)


def reconnect(process: Process) -> None:
    process.signal(signal.SIGCONT)


def test_a_connection_that_is_closed_the_moment_a_job_is_sent_loses_none(
    impatient: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient.add_worker()
    send, closed = SchedulerExchange.answer, []

    async def answer(exchange: SchedulerExchange, *arguments: Any) -> bytes:
        if not closed:
            closed.append(exchange)
            await exchange._client.close()
        return await send(exchange, *arguments)

    monkeypatch.setattr(SchedulerExchange, "answer", answer)

    async def work() -> Report:
        async with controller(impatient) as executor:
            return await executor.run(job("sent late"), silent)

    assert drive(work()).verdict.outcome.value == "correct"
    assert closed


def test_a_worker_that_is_cut_off_for_a_while_goes_on(impatient: ClusterProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = impatient.add_worker("--seconds", "1", "--log", str(log))

    async def work() -> Report:
        async with controller(impatient) as executor:
            running = asyncio.create_task(executor.run(job("patient"), silent))
            await asyncio.to_thread(wait_until, lambda: bool(judged(log)), "it is begun")
            cut_off(worker)
            await asyncio.sleep(_SILENT_SECONDS / 2)
            assert not running.done()
            reconnect(worker)
            report: Report = await running
            return report

    assert drive(work()).job == "patient"
    assert judged(log) == ["# patient"], "judged once"


def test_a_worker_that_is_cut_off_for_too_long_is_replaced_and_comes_back(
    impatient: ClusterProcesses, tmp_path: Path
) -> None:
    logs = [tmp_path / "first", tmp_path / "second"]
    first = impatient.add_worker("--seconds", "2", "--log", str(logs[0]))

    async def work() -> None:
        async with controller(impatient) as executor:
            running = asyncio.create_task(executor.run(job("long"), silent))
            await asyncio.to_thread(wait_until, lambda: bool(judged(logs[0])), "it is begun")
            cut_off(first)
            await asyncio.to_thread(impatient.add_worker, "--log", str(logs[1]))
            assert (await running).job == "long"
            assert judged(logs[1]) == ["# long"], "another worker has judged it"
            reconnect(first)
            await asyncio.to_thread(wait_until, lambda: workers_there(impatient) == 2, "the first is back")
            reports = await asyncio.gather(*(executor.run(job(f"after {number}"), silent) for number in range(4)))
            assert [report.job for report in reports] == [f"after {number}" for number in range(4)]

    drive(work())


def test_a_network_that_is_gone_twice_makes_no_poison_of_a_job(impatient: ClusterProcesses, tmp_path: Path) -> None:
    """Two workers that were silent over one job are no two that it ended: they come back."""
    log = tmp_path / "log"
    workers = impatient.add_workers(2, "--seconds", "4", "--log", str(log))
    by_pid = {str(worker.pid): worker for worker in workers}

    async def work() -> Report:
        async with controller(impatient) as executor:
            running = asyncio.create_task(executor.run(job("unlucky"), silent))
            for time_number in (1, 2):
                await asyncio.to_thread(
                    wait_until, lambda count=time_number: len(judged(log)) == count, f"begun {time_number} times"
                )
                victim = by_pid[log.read_text().split("\n")[time_number - 1].split()[0]]
                cut_off(victim)
                await asyncio.to_thread(wait_until, lambda: workers_there(impatient) == 1, "it is taken for gone")
                reconnect(victim)
                await asyncio.to_thread(wait_until, lambda: workers_there(impatient) == 2, "it is back")
            report: Report = await running
            return report

    assert drive(work()).job == "unlucky"


def test_jobs_outlive_a_network_that_is_gone_for_all_workers_at_once(
    impatient: ClusterProcesses, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    workers = impatient.add_workers(2, "--seconds", "4", "--slots", "2", "--log", str(log))

    async def work() -> list[Report]:
        async with controller(impatient) as executor:
            running = asyncio.gather(*(executor.run(job(f"program {number}"), silent) for number in range(6)))
            await asyncio.to_thread(wait_until, lambda: len(judged(log)) == 4, "all places are taken")
            for worker in workers:
                cut_off(worker)
            await asyncio.to_thread(wait_until, lambda: workers_there(impatient) == 0, "all are taken for gone")
            for worker in workers:
                reconnect(worker)
            return await running

    assert [report.job for report in drive(work())] == [f"program {number}" for number in range(6)]


def test_a_controller_that_hears_nothing_of_its_scheduler_for_too_long_connects_anew(
    cluster: ClusterProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kforge.cluster.connection._CONNECT_SECONDS", 2.0)
    monkeypatch.setattr("kforge.cluster.connection._CENSUS_SECONDS", 0.5)
    log = tmp_path / "log"
    cluster.add_worker("--seconds", "1", "--log", str(log))
    told: list[str] = []

    async def work() -> list[Report]:
        async with controller(cluster) as executor:
            running = asyncio.gather(*(executor.run(job(f"program {number}"), told.append) for number in range(4)))
            await asyncio.to_thread(wait_until, lambda: bool(judged(log)), "the first is begun")
            assert cluster.scheduler is not None
            cut_off(cluster.scheduler)
            silence = "does not answer; trying again"
            await asyncio.to_thread(wait_until, lambda: any(silence in words for words in told), f"told: {told}")
            reconnect(cluster.scheduler)
            return await running

    assert [report.job for report in drive(work())] == [f"program {number}" for number in range(4)]
    assert set(judged(log)) == {f"# program {number}" for number in range(4)}


# -- slow devices ----------------------------------------------------------------------------------------------------


def test_others_go_on_beside_a_worker_that_is_slow(cluster: ClusterProcesses, tmp_path: Path) -> None:
    logs = [tmp_path / "slow", tmp_path / "quick"]
    cluster.add_worker("--seconds", "300", "--log", str(logs[0]))
    cluster.add_worker("--seconds", "0.1", "--log", str(logs[1]))
    jobs = [job(f"program {number}") for number in range(12)]

    async def work() -> float:
        async with controller(cluster) as executor:
            began = time.monotonic()
            running = [asyncio.create_task(executor.run(each, silent)) for each in jobs]
            while sum(task.done() for task in running) < len(jobs) - 1:
                await asyncio.sleep(0.05)
            spent = time.monotonic() - began
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            return spent

    assert drive(work()) < 100, "all but the one in hand there wait for the slow worker"
    assert len(judged(logs[0])) == 1


def test_a_time_from_a_device_that_is_slowed_down_arrives_as_contended(cluster: ClusterProcesses) -> None:
    cluster.add_worker("--contended")
    [report] = run_all(cluster, [job("nine times as fast, it seems")])
    assert isinstance(report, Report)
    assert report.verdict.contended
    assert report.verdict.speedup == 9.0
    assert "contended" in str(report.verdict.timing)


def test_a_program_that_a_slowed_device_has_judged_is_judged_again_on_another_host(
    cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kforge.cluster.connection._CENSUS_SECONDS", 0.2)
    cluster.add_worker("--contended", "--host", "slowed")

    async def work() -> None:
        async with controller(cluster) as executor:
            first = await executor.run(job("a program"), silent)
            assert first.verdict.contended
            cluster.add_worker("--host", "well")
            await asyncio.sleep(3)
            report, notes = await judge_until_quiet(executor, job("a program"), first, silent)
            assert not report.verdict.contended
            assert report.verdict.evidence is not None
            assert report.verdict.evidence.host == "well"
            assert notes
            assert notes[0].startswith("judged again, since others used the machine")

    drive(work())


# -- full disks ------------------------------------------------------------------------------------------------------


@pytest.mark.toolchain
def test_a_job_that_finds_a_disk_full_goes_to_another_host_once(
    cluster: ClusterProcesses, small_disk: Path, tmp_path: Path, scale_relu: Problem, honest: Candidate
) -> None:
    """The judge is a real one, and so is the disk, on which its programs are built."""
    log = tmp_path / "log"
    crowd = {"TMPDIR": str(small_disk), "XDG_CACHE_HOME": str(small_disk / "cache")}
    full = cluster.add_judging_worker("--platforms", "cpu", environment=crowd)
    fill(small_disk)
    [standing] = take_census(parse_address(cluster.url), fresh=True).workers
    assert standing.description is not None
    model = standing.description.groups[0].model
    settings = Settings(timing_seconds=0, compile_baseline=False, seeds=2)

    told: list[str] = []

    async def work() -> None:
        async with controller(cluster) as executor:
            with pytest.raises(HarnessError, match="No space left on device") as raised:
                await executor.run(Job("alone", scale_relu, honest, settings), silent)
            assert str(raised.value).startswith(f"{standing.description.host}: ")
        cluster.add_worker("--model", model, "--host", "well", "--log", str(log))
        programs = [Candidate(f"# {number}\n{honest.source}") for number in range(4)]
        jobs = [Job(program.id, scale_relu, program, settings) for program in programs]
        async with controller(cluster) as executor:
            reports = await asyncio.gather(*(executor.run(each, told.append) for each in jobs))
        assert [report.job for report in reports] == [each.id for each in jobs]

    drive(work())
    assert len(judged(log)) == 4
    assert "a worker could not do it: asking another" in told, "the full one had its share of them"
    assert full.process.poll() is None, "it is still there, for when somebody makes room"


def fill(folder: Path) -> None:
    """Leave no room there."""
    with contextlib.suppress(OSError), (folder / "in the way").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
