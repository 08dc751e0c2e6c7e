"""What a worker process does with requests, without a cluster around it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bundle_maker
from kforge.cluster.description import DeviceGroup, WorkerDescription
from kforge.cluster.device_host import DeviceHost
from kforge.cluster.job_message import FORMAT, judge_request, own_version, read_report_on
from kforge.cluster.live_files import LiveFiles
from kforge.cluster.processor_turn import ProcessorTurn
from kforge.errors import HarnessError
from kforge.types import Candidate, Job, Problem, Report

pytestmark = pytest.mark.pure

JOB = Job("one", Problem("sample", "class Model: ..."), Candidate("class ModelNew: ..."))
GROUP = DeviceGroup("cpu", "a model", (0,), 2)


class HeldJudge:
    """Comes to its verdict when it is let."""

    def __init__(self) -> None:
        self.machine = asyncio.Lock()
        self.may_end = asyncio.Event()
        self.jobs: list[Job] = []
        self.payloads: list[bytes] = []

    async def run(self, job: Job, tell: Any) -> Report:
        self.jobs.append(job)
        if job.problem.payload:
            self.payloads.append(Path(job.problem.payload).read_bytes())
        tell("at it")
        await self.may_end.wait()
        return bundle_maker.report_on(job, 1.5)

    async def close(self) -> None:
        pass


def make_host(judge: HeldJudge) -> DeviceHost:
    versions = (own_version(), FORMAT, "3.11", "Linux", "2.13")
    description = WorkerDescription("gpu1", 7, "ab", *versions, "bubblewrap", (GROUP,))
    return DeviceHost(description, lambda _: judge)


def answered(job: Job, payload: bytes = b"", message: bytes = b"", model: str = "a model") -> tuple[bytes, HeldJudge]:
    async def work() -> tuple[bytes, HeldJudge]:
        judge = HeldJudge()
        judge.may_end.set()
        host = make_host(judge)
        answer = await host.answer("key", message or judge_request(job).message, payload, model)
        await host.close()
        return answer, judge

    return asyncio.run(work())


def test_a_job_of_another_version_is_answered_with_what_to_do() -> None:
    message = json.dumps({**json.loads(judge_request(JOB).message), "kforge": "0.0.1"}).encode()
    answer, judge = answered(JOB, message=message)
    with pytest.raises(HarnessError, match=r"gpu1: the job is of KForge 0\.0\.1 .* install one version on both sides"):
        read_report_on(JOB, answer)
    assert not judge.jobs


def test_a_device_that_is_not_here_is_an_answer() -> None:
    with pytest.raises(Exception, match="gpu1: no another model for platform cpu is on this worker"):
        read_report_on(JOB, answered(JOB, model="another model")[0])


def test_a_live_modules_file_is_checked_by_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    payload = b"in place of a pickle"
    problem = replace(JOB.problem, payload_hash=hashlib.sha256(payload).hexdigest())
    job = replace(JOB, problem=problem)
    answer, judge = answered(job, payload)
    assert read_report_on(job, answer).job == "one"
    assert judge.payloads == [payload]
    assert not Path(judge.jobs[0].problem.payload).exists(), "a night long, they would fill the disk"
    answer, judge = answered(job, payload + b"!")
    with pytest.raises(HarnessError, match="damaged on its way"):
        read_report_on(job, answer)
    assert not judge.jobs


def test_a_live_modules_file_is_there_as_long_as_one_of_its_jobs_is_in_hand() -> None:
    payload = b"in place of a pickle"
    job = replace(JOB, problem=replace(JOB.problem, payload_hash=hashlib.sha256(payload).hexdigest()))
    files = LiveFiles()
    with files.hold(job, payload) as first:
        with files.hold(job, payload) as second:
            assert first.problem.payload == second.problem.payload
        assert Path(first.problem.payload).read_bytes() == payload
    folder = Path(first.problem.payload).parent
    assert not list(folder.iterdir())
    files.close()
    assert not folder.exists()


def test_whoever_was_cut_off_finds_the_answer_and_another_asks_anew() -> None:
    async def work() -> None:
        judge = HeldJudge()
        host, message = make_host(judge), judge_request(JOB).message
        cut_off = asyncio.create_task(host.answer("key", message, b"", "a model"))
        while not judge.jobs:
            await asyncio.sleep(0)
        [in_hand] = host.activity().in_hand
        assert (in_hand.title, in_hand.doing, host.busy) == ("sample", "at it", 1)
        cut_off.cancel()
        await asyncio.wait([cut_off])
        again = asyncio.create_task(host.answer("key", message, b"", "a model"))
        await asyncio.sleep(0)
        again.cancel()
        await asyncio.wait([again])
        judge.may_end.set()
        while host.busy:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert read_report_on(JOB, await host.answer("key", message, b"", "a model")).job == "one"
        assert len(judge.jobs) == 1, "the answer was kept"
        await host.answer("key", message, b"", "a model")
        assert len(judge.jobs) == 2, "and given once"
        assert host.activity().verdicts == 2

    asyncio.run(work())


def test_workers_on_the_same_cores_take_turns_and_others_do_not_wait(tmp_path: Path) -> None:
    async def work() -> None:
        first, same, apart = (ProcessorTurn(cores, tmp_path) for cores in ((0, 1), (1, 2), (3,)))
        async with first.hold(lambda _: None):
            waiting = asyncio.create_task(_take(same))
            await asyncio.wait_for(_take(apart), 30)
            await asyncio.wait([waiting], timeout=0.1)
            assert not waiting.done()
        await asyncio.wait_for(waiting, 30)

    asyncio.run(work())


async def _take(turn: ProcessorTurn) -> None:
    async with turn.hold(lambda _: None):
        pass
