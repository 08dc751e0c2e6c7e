"""Who is asked: the worker that knows a problem, another device than the first, and anybody rather than nobody."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_jobs import RELU, controller, drive, judged, silent
from cluster_processes import ClusterProcesses, interrupt

import makers
from conditions import PATIENCE, wait_until
from kforge.experiments.resume_plan import begin
from kforge.experiments.scheduler import ExperimentEnvironment, conduct
from kforge.experiments.study_reader import read_studies
from kforge.metrics.second_judgement import second_judgement
from kforge.models.scripted import Scripted
from kforge.reports import markdown
from kforge.reports.findings import find
from kforge.run.model_pool import ModelAccess
from kforge.store.store import Store
from kforge.types import Candidate, Configuration, Experiment, Job, JudgingDevice, Problem, Report

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[ClusterProcesses]:
    """A cluster that no test of this file does harm to: two workers, on two hosts by their names."""
    with ClusterProcesses() as processes:
        processes.add_workers(1, "--model", "elsewhere", "--host", "one")
        processes.add_workers(1, "--model", "elsewhere", "--host", "two")
        yield processes


def host_of(report: Report) -> str:
    assert report.verdict.evidence is not None
    return report.verdict.evidence.host


def device_of(report: Report) -> JudgingDevice:
    assert report.verdict.evidence is not None
    return report.verdict.evidence.judging_device


def job_on(problem: str, number: int) -> Job:
    return Job(f"{problem}-{number}", Problem(problem, f"class {problem}: ..."), Candidate(f"# {problem} {number}"))


def test_jobs_for_a_problem_go_to_the_worker_that_knows_it(cluster: ClusterProcesses, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    cluster.add_workers(3, "--seconds", "0.05", "--opened", str(opened))

    async def cell(executor: object, problem: str) -> None:
        for number in range(6):
            await executor.run(job_on(problem, number), silent)  # type: ignore[attr-defined]

    async def work() -> None:
        async with controller(cluster) as executor:
            await asyncio.gather(*(cell(executor, f"P{number}") for number in range(3)))

    drive(work())
    assert len(opened.read_text().splitlines()) <= 5, "3 problems in 18 jobs: nearly all found their problem open"


def test_a_job_does_not_wait_for_a_busy_worker_where_another_is_idle(cluster: ClusterProcesses, tmp_path: Path) -> None:
    logs = [tmp_path / "first", tmp_path / "second"]
    held = tmp_path / "hold"
    held.mkdir()
    cluster.add_worker("--log", str(logs[0]), "--hold", str(held))

    async def work() -> None:
        async with controller(cluster) as executor:
            await executor.run(job_on("P", 0), silent)
            await asyncio.to_thread(cluster.add_worker, "--log", str(logs[1]))
            (held / "1").touch()
            long = asyncio.create_task(executor.run(job_on("P", 1), silent))
            await asyncio.to_thread(wait_until, lambda: "# P 1" in judged(logs[0]), "the one that knows it is busy")
            await asyncio.sleep(6)
            assert (await executor.run(job_on("P", 2), silent)).job == "P-2"
            (held / "1").unlink()
            await long

    drive(work())
    assert "# P 2" in judged(logs[1])


def test_a_job_that_waits_moves_to_another_worker_that_knows_its_problem_and_is_idle(
    cluster: ClusterProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = "kforge.cluster.job_placement._PATIENCE_SECONDS"
    monkeypatch.setattr(patience, 0.5)
    logs = [tmp_path / "first", tmp_path / "second"]
    held = tmp_path / "hold"
    held.mkdir()
    cluster.add_worker("--log", str(logs[0]), "--hold", str(held))

    async def work() -> None:
        async with controller(cluster) as executor:

            async def begin_long(number: int, log: Path) -> asyncio.Task[Report]:
                (held / str(number)).touch()
                long = asyncio.create_task(executor.run(job_on("P", number), silent))
                await asyncio.to_thread(wait_until, lambda: f"# P {number}" in judged(log), "it is busy")
                return long

            await executor.run(job_on("P", 0), silent)
            first = await begin_long(1, logs[0])
            await asyncio.to_thread(cluster.add_worker, "--log", str(logs[1]), "--hold", str(held))
            await executor.run(job_on("P", 2), silent)
            monkeypatch.setattr(patience, 1e6)
            second = await begin_long(3, logs[1])
            # Both know the problem, and both are busy: it waits for the one that knew it last.
            waiting = asyncio.create_task(executor.run(job_on("P", 4), silent))
            await asyncio.sleep(1)
            (held / "1").unlink()
            assert (await asyncio.wait_for(waiting, PATIENCE)).job == "P-4"
            (held / "3").unlink()
            await asyncio.gather(first, second)

    drive(work())
    assert "# P 4" in judged(logs[0])


@pytest.mark.parametrize("patience", [0.5, 20.0], ids=["it is there, and busy with others", "it is killed"])
def test_a_job_waits_for_the_worker_that_knows_its_problem_no_longer_than_is_good(
    cluster: ClusterProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr("kforge.cluster.job_placement._PATIENCE_SECONDS", patience)
    monkeypatch.setattr("kforge.cluster.connection._CENSUS_SECONDS", 0.5)
    logs = [tmp_path / "first", tmp_path / "second"]
    held = tmp_path / "hold"
    held.mkdir()
    first = cluster.add_worker("--log", str(logs[0]), "--hold", str(held))

    async def work() -> Report:
        async with controller(cluster) as executor, controller(cluster) as other:
            await executor.run(job_on("P", 0), silent)
            (held / "1").touch()
            # Of another controller's jobs this one knows nothing.
            long = asyncio.create_task(other.run(job_on("Q", 1), silent))
            await asyncio.to_thread(wait_until, lambda: "# Q 1" in judged(logs[0]), "the one that knows P is busy")
            waiting = asyncio.create_task(executor.run(job_on("P", 2), silent))
            await asyncio.to_thread(cluster.add_worker, "--log", str(logs[1]))
            if patience > 1:
                first.signal(signal.SIGKILL)
            report: Report = await waiting
            (held / "1").unlink()
            await long
            return report

    assert drive(work()).job == "P-2"
    assert "# P 2" in judged(logs[1])


@pytest.mark.parametrize("seconds", [0.0, 0.5], ids=["at once", "with Dask slow to hear of its end"])
def test_a_worker_that_is_retiring_finishes_what_was_steered_to_it_and_keeps_nothing_else(
    cluster: ClusterProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr("kforge.cluster.connection._CENSUS_SECONDS", 0.5)
    logs = [tmp_path / "first", tmp_path / "second"]
    held = tmp_path / "hold"
    held.mkdir()
    first = cluster.add_worker("--log", str(logs[0]), "--hold", str(held), "--report-seconds", str(seconds))

    async def work() -> None:
        async with controller(cluster) as executor:
            await executor.run(job_on("P", 0), silent)
            (held / "1").touch()
            running = [asyncio.create_task(executor.run(job_on("P", number), silent)) for number in (1, 2)]
            await asyncio.to_thread(wait_until, lambda: "# P 1" in judged(logs[0]), "it is busy")
            await asyncio.to_thread(cluster.add_worker, "--log", str(logs[1]))
            interrupt(first)
            assert (await running[1]).job == "P-2"
            (held / "1").unlink()
            assert (await running[0]).job == "P-1"

    drive(work())
    assert judged(logs[0]) == ["# P 0", "# P 1"]
    assert judged(logs[1]) == ["# P 2"], "what was in hand was finished where it was begun"


# -- another device --------------------------------------------------------------------------------------------------


def test_what_one_host_has_judged_another_is_asked_for(two_hosts: ClusterProcesses) -> None:
    async def work() -> None:
        async with controller(two_hosts) as executor:
            for number in range(6):
                first = await executor.run(job_on("P", number), silent)
                second = await executor.run_apart(job_on("P", number), silent, device_of(first))
                assert {host_of(first), host_of(second)} == {"one", "two"}

    drive(work())


def test_where_there_is_no_other_host_the_same_is_asked(cluster: ClusterProcesses) -> None:
    cluster.add_worker("--host", "one")
    cluster.add_worker("--host", "two", "--model", "another device")

    async def work() -> None:
        async with controller(cluster) as executor:
            executor.keep_to_hardware("a null device")
            assert host_of(await executor.run_apart(job_on("P", 1), silent, JudgingDevice("one", "gpu0"))) == "one"

    drive(work())


@pytest.mark.parametrize("workers", [["gpu0 gpu1"], ["gpu0", "gpu1"]], ids=["of one worker", "of two workers"])
def test_where_there_is_one_host_another_of_its_devices_is_asked(cluster: ClusterProcesses, workers: list[str]) -> None:
    for identities in workers:
        cluster.add_worker("--host", "one", "--identities", *identities.split())

    async def work() -> None:
        async with controller(cluster) as executor:
            for number in range(4):
                first = await executor.run(job_on("P", number), silent)
                second = await executor.run_apart(job_on("P", number), silent, device_of(first))
                assert {device_of(first).identity, device_of(second).identity} == {"gpu0", "gpu1"}

    drive(work())


def test_where_the_other_host_is_lost_meanwhile_the_same_is_asked(
    cluster: ClusterProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kforge.cluster.connection._CENSUS_SECONDS", 0.5)
    log = tmp_path / "log"
    cluster.add_worker("--host", "one")
    second = cluster.add_worker("--host", "two", "--seconds", "60", "--log", str(log))

    async def work() -> None:
        async with controller(cluster) as executor:
            running = asyncio.create_task(executor.run_apart(job_on("P", 1), silent, JudgingDevice("one")))
            await asyncio.to_thread(wait_until, lambda: bool(judged(log)), "the other host is at it")
            second.signal(signal.SIGKILL)
            assert host_of(await running) == "one"

    drive(work())


def test_a_winner_is_confirmed_on_another_host_and_the_report_says_whether_both_agree(
    two_hosts: ClusterProcesses, tmp_path: Path
) -> None:
    problem = Problem("p", RELU, level=1, number=1)
    way = Configuration("scripted", ("scripted:a",), {"iterations": 2, "profiling": "none"})
    experiment = Experiment("e", {"level1/p": problem}, (way,), executor=f"dask:{two_hosts.url}")
    replies = (makers.reply(f"x + {number}") for number in itertools.count())
    model = Scripted(lambda _: next(replies), name="scripted:a")
    with Store.open(str(tmp_path / "store")) as store:
        name = begin(experiment, store)
        access = ModelAccess(models={"scripted:a": model})
        drive(conduct(name, ExperimentEnvironment(store, access)))
        [study] = read_studies(store, [name])
    [trial] = study.trials
    judged_twice = second_judgement(trial)
    assert judged_twice is not None
    assert set(judged_twice.hosts) == {"one", "two"}
    assert judged_twice.is_elsewhere
    assert judged_twice.agrees
    text = markdown.markdown(find(study))
    assert "1 of them on another device than the first time. Both measurements agree for 1 of 1." in text
