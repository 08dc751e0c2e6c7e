"""What every executor keeps to: local judges and a cluster of processes, asked in the same way."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

from cluster_processes import PATIENCE, ClusterProcesses

import bundle_maker
from kforge.errors import HarnessError, ProblemError
from kforge.execution.base import Executor
from kforge.execution.local import LocalExecutor
from kforge.types import Candidate, Job, Problem

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]

PROBLEM = Problem("sample", "class Model: ...")
Make = Callable[[], Executor]


class LocalNullJudges:
    """In the place of a machine's judges: each job takes a moment."""

    def report(self, job: Job, tell: Any) -> Any:
        tell("at it")
        if "BROKEN" in job.candidate.source:
            raise ProblemError("the reference raises")
        if "FAULT" in job.candidate.source:
            raise HarnessError("the device fell off the bus")
        return bundle_maker.report_on(job, 1.5)

    def close(self) -> None:
        pass


def make_local() -> Executor:
    executor = LocalExecutor("cpu")
    executor._judges = LocalNullJudges()  # type: ignore[assignment]
    return executor


@pytest.fixture(scope="module", params=["local", "cluster"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    if request.param == "local":
        yield make_local
        return
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")
    from kforge.cluster.address import parse_address
    from kforge.cluster.executor import ClusterExecutor

    with ClusterProcesses() as cluster:
        cluster.add_worker("--slots", "2")
        yield lambda: ClusterExecutor(parse_address(cluster.url), "cpu")


def job(text: str) -> Job:
    return Job(text, PROBLEM, Candidate(f"# {text}\nclass ModelNew: ..."))


def drive(make: Make, *texts: str, tell: Callable[[str], None] = lambda _: None) -> list[Any]:
    async def work() -> list[Any]:
        executor = make()
        try:
            jobs = (executor.run(job(text), tell) for text in texts)
            return await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), PATIENCE)
        finally:
            await executor.close()

    return asyncio.run(work())


def test_each_job_is_answered_by_its_own_report(make: Make) -> None:
    texts = [f"program {number}" for number in range(6)]
    for text, report in zip(texts, drive(make, *texts), strict=True):
        assert (report.job, report.candidate) == (text, job(text).candidate.id)
        assert report.verdict.speedup == 1.5


def test_whoever_waits_is_told_in_his_own_thread(make: Make) -> None:
    told: list[tuple[str, int]] = []
    drive(make, "told", tell=lambda words: told.append((words, threading.get_ident())))
    assert told
    assert {thread for _, thread in told} == {threading.get_ident()}


def test_the_fault_of_one_job_is_raised_for_that_one_alone(make: Make) -> None:
    broken, faulty, good = drive(make, "BROKEN", "FAULT", "good")
    assert isinstance(broken, ProblemError)
    assert isinstance(faulty, HarnessError)
    assert good.job == "good"


def test_a_job_may_be_given_up_and_the_next_is_carried_out(make: Make) -> None:
    async def work() -> str:
        executor = make()
        try:
            given_up = asyncio.create_task(executor.run(job("given up"), lambda _: None))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            report = await asyncio.wait_for(executor.run(job("next"), lambda _: None), PATIENCE)
            return report.job
        finally:
            await executor.close()

    assert asyncio.run(work()) == "next"


def test_nothing_is_carried_out_after_the_end_and_ending_twice_is_no_fault(make: Make) -> None:
    async def work() -> None:
        executor = make()
        await executor.run(job("first"), lambda _: None)
        await executor.close()
        await executor.close()
        with pytest.raises(HarnessError, match="closed"):
            await executor.run(job("too late"), lambda _: None)

    asyncio.run(work())
