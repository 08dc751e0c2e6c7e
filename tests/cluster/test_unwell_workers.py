"""Workers that fail, that cannot come back, that another controller counts on, and answers that are lost one by one."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_jobs import RELU, controller, drive, job, judged, silent
from cluster_processes import ClusterProcesses, wait_until

import makers
from kforge.cli.cluster import show
from kforge.cluster.address import parse_address
from kforge.cluster.exchange import SchedulerExchange
from kforge.cluster.inquiry import take_census
from kforge.errors import HarnessError
from kforge.experiments.resume_plan import begin
from kforge.experiments.scheduler import ExperimentEnvironment, conduct
from kforge.models.scripted import Scripted
from kforge.run.model_pool import ModelAccess
from kforge.store.store import Store
from kforge.types import Candidate, Configuration, Experiment, Job, Problem, Report

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]


def job_on(problem: str, number: int) -> Job:
    return Job(f"{problem}-{number}", Problem(problem, f"class {problem}: ..."), Candidate(f"# {problem} {number}"))


@pytest.fixture
def eager_census(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kforge.cluster.connection._CENSUS_SECONDS", 0.5)


@pytest.mark.usefixtures("eager_census")
def test_whoever_asks_for_the_same_is_not_bound_to_a_worker_that_another_controller_chose(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    log, held = tmp_path / "log", tmp_path / "hold"
    held.mkdir()
    first = cluster.add_worker("--log", str(log), "--hold", str(held))

    async def work() -> None:
        async with controller(cluster) as one, controller(cluster) as other:
            await one.run(job_on("P", 0), silent)
            (held / "1").touch()
            running = [asyncio.create_task(one.run(job_on("P", 1), silent))]
            await asyncio.to_thread(wait_until, lambda: "# P 1" in judged(log), "it is at the worker that knows P")
            running.append(asyncio.create_task(other.run(job_on("P", 1), silent)))
            await asyncio.to_thread(cluster.add_worker)
            first.signal(signal.SIGKILL)
            reports: list[Report] = await asyncio.gather(*running)
            assert [report.job for report in reports] == ["P-1", "P-1"]

    drive(work())


def test_a_worker_whose_name_is_taken_waits_until_it_is_free(cluster: ClusterProcesses) -> None:
    first = cluster.add_worker("--name", "gpu1")
    second = cluster.add_worker("--name", "gpu1", wait=False)
    line = second.wait_for_line("trying again")
    assert "the scheduler does not take this worker" in line
    assert "gpu1" in line
    first.signal(signal.SIGKILL)
    second.wait_for_line("serving")


def test_a_worker_that_cannot_do_a_job_is_left_alone_for_a_while(cluster: ClusterProcesses, tmp_path: Path) -> None:
    """Both are on one host: a GPU each, as it is where somebody starts a worker for every device."""
    broken = tmp_path / "broken"
    cluster.add_worker("--fault", "no space left on device", "--log", str(broken), "--host", "one")
    cluster.add_worker("--seconds", "0.2", "--host", "one")

    async def work() -> None:
        async with controller(cluster) as executor:
            for number in range(6):
                assert (await executor.run(job_on(f"P{number}", number), silent)).job == f"P{number}-{number}"

    drive(work())
    assert len(judged(broken)) == 1, "it fails at once, and would have been idle for every job"


def test_what_a_run_was_judged_on_is_not_changed_beside_another_run(cluster: ClusterProcesses) -> None:
    cluster.add_worker("--model", "large", "--slots", "2", "--facts", '{"memory": "much"}')
    cluster.add_worker("--model", "small", "--facts", '{"memory": "little"}')

    async def work() -> None:
        async with controller(cluster) as executor:
            assert (await executor.facts())["memory"] == "much"
            await executor.run(job("a program"), silent)
            executor.keep_to_hardware("large")
            with pytest.raises(HarnessError, match="judged on small, and this session judges on large"):
                executor.keep_to_hardware("small")
            await executor.run(job("another program"), silent)
        async with controller(cluster) as resumed:
            resumed.keep_to_hardware("small")
            assert (await resumed.facts())["memory"] == "little"

    drive(work())


def test_prompts_are_written_although_nobody_is_there() -> None:
    class Nowhere:
        url, tls = "tcp://127.0.0.1:9", None

    async def work() -> dict[str, str]:
        async with controller(Nowhere()) as executor:  # type: ignore[arg-type]
            facts: dict[str, str] = await executor.facts()
            return facts

    assert drive(work()) == {}


def test_platforms_of_an_experiment_do_not_wait_for_each_other(cluster: ClusterProcesses, tmp_path: Path) -> None:
    logs, held = {"cpu": tmp_path / "cpu", "metal": tmp_path / "metal"}, tmp_path / "hold"
    held.mkdir()
    (held / "torch").touch()
    for platform, log in logs.items():
        cluster.add_worker("--platform", platform, "--log", str(log), "--hold", str(held))
    way = Configuration("scripted", ("scripted:a",), {"iterations": 1, "profiling": "none"})
    experiment = Experiment(
        "e", {"level1/p": Problem("p", RELU)}, (way,), platforms=("cpu", "metal"), executor=f"dask:{cluster.url}"
    )

    async def work(store: Store) -> None:
        access = ModelAccess(models={"scripted:a": Scripted(lambda _: makers.reply("x + 1"), name="scripted:a")})
        running = asyncio.create_task(conduct(begin(experiment, store), ExperimentEnvironment(store, access)))
        both = asyncio.to_thread(wait_until, lambda: all(map(judged, logs.values())), "both are judging at once")
        await asyncio.wait({running, asyncio.ensure_future(both)}, return_when=asyncio.FIRST_COMPLETED)
        assert all(map(judged, logs.values()))
        (held / "torch").unlink()
        states = await running
        assert [state.finished for state in states.values()] == [True, True]

    with Store.open(str(tmp_path / "store")) as store:
        drive(work(store))


@pytest.mark.usefixtures("eager_census")
def test_what_a_controller_holds_itself_is_told(
    cluster: ClusterProcesses, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = tmp_path / "hold"
    held.mkdir()
    (held / "0").touch()
    cluster.add_worker("--hold", str(held))

    def waiting() -> dict[str, int]:
        census = take_census(parse_address(cluster.url), fresh=True)
        return {item.state: item.count for controller in census.controllers for item in controller.jobs}

    async def work() -> None:
        async with controller(cluster) as executor:
            running = [asyncio.create_task(executor.run(job_on("P", number), silent)) for number in range(7)]
            await asyncio.to_thread(wait_until, lambda: waiting().get("held") == 5, "two are with the scheduler")
            await asyncio.to_thread(show, cluster.url, None, False, False)
            (held / "0").unlink()
            await asyncio.gather(*running)

    drive(work())
    assert "5 x kforge-cpu:a null device: waiting there until the scheduler has room" in capsys.readouterr().out


class Answers:
    """In the place of Dask's client: answers by number, of which some cannot be fetched."""

    status, id = "running", "a client"

    def __init__(self, lost: set[int]) -> None:
        self.lost = lost

    async def gather(self, futures: list[int], direct: bool) -> list[bytes]:
        if self.lost.intersection(futures):
            if len(futures) > 1:
                await asyncio.sleep(60)
            raise OSError("its host is gone")
        return [str(number).encode() for number in futures]


def test_an_answer_that_is_lost_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kforge.cluster.exchange._FETCH_SECONDS", 0.2)

    async def work() -> list[Any]:
        exchange = SchedulerExchange(Answers({2}))  # type: ignore[arg-type]
        fetching = (exchange._fetch(number) for number in range(6))  # type: ignore[arg-type]
        return await asyncio.gather(*fetching, return_exceptions=True)

    answers = drive(work(), 10)
    assert [answer for number, answer in enumerate(answers) if number != 2] == [b"0", b"1", b"3", b"4", b"5"]
    assert isinstance(answers[2], OSError)
