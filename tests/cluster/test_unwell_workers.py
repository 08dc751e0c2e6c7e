"""Workers that fail, that cannot come back, that another controller counts on, and answers that are lost one by one."""

from __future__ import annotations

import asyncio
import itertools
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_jobs import RELU, controller, drive, job, judged, silent
from cluster_processes import ClusterProcesses, Process

import makers
from conditions import wait_until
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
from kforge.types import Candidate, Configuration, Experiment, Job, JudgingDevice, Problem, Report

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
    assert "the scheduler does not take this worker: one called gpu1 is there" in line
    assert "another --name; trying again" in line
    first.signal(signal.SIGKILL)
    second.wait_for_line("serving")


@pytest.mark.parametrize("broken", [1, 2])
def test_workers_that_cannot_do_a_job_are_left_alone_for_a_while(
    cluster: ClusterProcesses, tmp_path: Path, broken: int
) -> None:
    """All are on one host: a GPU each, as it is where somebody starts a worker for every device."""
    log = tmp_path / "broken"
    for _ in range(broken):
        cluster.add_worker("--fault", "no space left on device", "--log", str(log), "--host", "one")
    cluster.add_worker("--seconds", "0.2", "--host", "one")

    async def work() -> None:
        async with controller(cluster) as executor:
            for number in range(6):
                each = job_on(f"P{number}", number)
                await executor.check_problem(each.problem, each.settings, silent)
                assert (await executor.run(each, silent)).job == each.id

    drive(work())
    assert len(judged(log)) <= broken, "they fail at once, and would have been idle for every job"


def test_a_confirmation_whose_worker_fails_does_not_go_back_to_the_first_device(cluster: ClusterProcesses) -> None:
    for identity in ("gpu0", "gpu2"):
        cluster.add_worker("--host", "one", "--identities", identity)
    cluster.add_worker("--host", "two", "--identities", "gpu1", "--fault", "the device is lost")

    async def work() -> None:
        async with controller(cluster) as executor:
            report: Report = await executor.run_apart(job("a winner"), silent, JudgingDevice("one", "gpu0"))
            assert report.verdict.evidence is not None
            assert report.verdict.evidence.identity == "gpu2"

    drive(work())


def test_what_a_run_was_judged_on_is_not_changed_beside_another_run(cluster: ClusterProcesses) -> None:
    cluster.add_worker("--model", "large", "--slots", "2", "--facts", '{"memory": "much"}')
    cluster.add_worker("--model", "small", "--facts", '{"memory": "little"}')

    async def work() -> None:
        async with controller(cluster) as executor:
            assert (await executor.facts(silent))["memory"] == "much"
            await executor.run(job("a program"), silent)
            executor.keep_to_hardware("large")
            with pytest.raises(HarnessError, match="judged on small, and this session judges on large"):
                executor.keep_to_hardware("small")
            await executor.run(job("another program"), silent)
        async with controller(cluster) as resumed:
            resumed.keep_to_hardware("small")
            assert (await resumed.facts(silent))["memory"] == "little"

    drive(work())


def test_prompts_wait_until_the_machine_is_known_that_they_speak_of(cluster: ClusterProcesses) -> None:
    told: list[str] = []
    cluster.kill_scheduler()

    def is_told(words: str) -> bool:
        return any(each.startswith(words) for each in told)

    async def work() -> None:
        async with controller(cluster) as executor:
            facts = asyncio.create_task(executor.facts(told.append))
            await asyncio.to_thread(wait_until, lambda: is_told("waiting: no scheduler answers"), "it says so")
            await asyncio.to_thread(cluster.start_scheduler)
            await asyncio.to_thread(wait_until, lambda: is_told("waiting: no worker judges for cpu"), "it says so")
            await asyncio.to_thread(cluster.add_worker, "--facts", '{"memory": "much"}')
            assert (await facts)["memory"] == "much"

    drive(work())


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
    """In the place of Dask's client, and of its scheduler: answers by number, of which some cannot be fetched."""

    status, id = "running", "a client"

    def __init__(self, lost: set[str], hung: set[str]) -> None:
        self.lost, self.hung = lost, hung
        self.scheduler = self

    async def gather(self, keys: list[str]) -> dict[str, Any]:
        if self.hung.intersection(keys):
            await asyncio.sleep(60)
        missing = self.lost.intersection(keys)
        if missing:
            return {"status": "error", "keys": list(missing)}
        return {"status": "OK", "data": {key: key.encode() for key in keys}}


@pytest.mark.parametrize(("lost", "hung"), [({"2"}, set()), (set(), {"2"}), ({"2"}, {"4"})])
def test_an_answer_that_is_lost_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, lost: set[str], hung: set[str]
) -> None:
    monkeypatch.setattr("kforge.cluster.exchange._FETCH_SECONDS", 0.2)

    async def work() -> dict[str, Any]:
        exchange = SchedulerExchange(Answers(lost, hung))  # type: ignore[arg-type]
        futures = [SimpleNamespace(key=str(number)) for number in range(6)]
        fetching = {future.key: asyncio.create_task(exchange._fetch(future)) for future in futures}  # type: ignore[arg-type]
        await asyncio.wait([task for key, task in fetching.items() if key not in hung])
        told = {key: task.exception() or task.result() for key, task in fetching.items() if key not in hung}
        for key in hung:
            fetching[key].cancel()
        return told

    answers = drive(work(), 10)
    assert {key: answer for key, answer in answers.items() if key not in lost} == {
        str(number): str(number).encode() for number in range(6) if str(number) not in lost | hung
    }
    assert all(isinstance(answers[key], OSError) for key in lost)


def test_an_experiment_goes_on_with_each_run_where_it_was_judged(cluster: ClusterProcesses, tmp_path: Path) -> None:
    """Two sessions, each on other hardware, and a third one that confirms the winners of both, and has a new cell."""
    logs = {"large": tmp_path / "large", "small": tmp_path / "small"}

    def worker(model: str, slots: str = "1") -> Process:
        return cluster.add_worker("--model", model, "--log", str(logs[model]), "--slots", slots)

    def session(store: Store, problems: str, confirm: bool) -> None:
        way = Configuration("scripted", ("scripted:a",), {"iterations": 2, "profiling": "none"})
        texts = {f"level1/{name}": Problem(name, f"{RELU}# {name}") for name in problems}
        experiment = Experiment("e", texts, (way,), executor=f"dask:{cluster.url}", confirm=confirm)
        replies = (makers.reply(f"x + {number}") for number in itertools.count())
        access = ModelAccess(models={"scripted:a": Scripted(lambda _: next(replies), name="scripted:a")})
        states = drive(conduct(begin(experiment, store), ExperimentEnvironment(store, access)))
        assert [(state.finished, state.failure) for state in states.values()] == [(True, "")] * len(problems)

    with Store.open(str(tmp_path / "store")) as store:
        small = worker("small")
        session(store, "qs", confirm=False)
        small.end()
        worker("large", "2")
        session(store, "pt", confirm=False)
        assert {model: len(judged(log)) for model, log in logs.items()} == {"small": 4, "large": 4}
        worker("small")
        session(store, "pqr", confirm=True)
    assert {model: len(judged(log)) for model, log in logs.items()} == {"small": 5, "large": 8}
