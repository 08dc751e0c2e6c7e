"""`kforge worker`, `kforge cluster` and `--executor dask`, as a user types them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_processes import ClusterProcesses, Process, free_port

from conditions import PATIENCE, wait_until
from kforge.cluster.address import TLS_VARIABLE, parse_address
from kforge.cluster.executor import ClusterExecutor
from kforge.cluster.inquiry import take_census
from kforge.execution import executor_names
from kforge.types import Candidate, Job, Problem, Report, Settings

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]
KForge = Callable[..., subprocess.CompletedProcess[str]]


def test_who_is_there_and_what_waits(kforge_here: KForge) -> None:
    with ClusterProcesses() as cluster:
        cluster.add_worker("--seconds", "300", "--model", "NVIDIA H200", "--platform", "cuda")
        cluster.add_worker("--platform", "metal", "--model", "Apple M4 Max", "--kforge", "0.0.1")
        script = f"""
import asyncio
from kforge.cluster.address import parse_address
from kforge.cluster.executor import ClusterExecutor
from kforge.types import Candidate, Job, Problem
async def work():
    executor = ClusterExecutor(parse_address({cluster.url!r}), "cuda")
    jobs = [Job(str(n), Problem("a_problem", "class Model: ..."), Candidate(f"# {{n}}", "cuda")) for n in range(3)]
    await asyncio.gather(*(executor.run(job, lambda words: print(words, flush=True)) for job in jobs))
asyncio.run(work())
"""
        controller = Process(["-c", script])
        try:
            controller.wait_for_line("judging on")

            def census() -> dict[str, Any]:
                done = kforge_here("cluster", cluster.url, "--json")
                assert done.returncode == 0, done.stderr
                told: dict[str, Any] = json.loads(done.stdout)
                return told

            wait_until(
                lambda: any(worker["activity"]["in_hand"] for worker in census()["workers"]),
                "a worker says what it is at",
            )
            done = kforge_here("cluster", cluster.url)
        finally:
            controller.end()
    assert done.returncode == 0
    assert "2 workers, 0 verdicts an hour" in done.stdout
    assert "cuda     1 x NVIDIA H200, 1 at once" in done.stdout
    assert "a_problem (cuda), " in done.stdout
    assert "another version than this one" in done.stdout
    assert "2 x kforge-cuda:NVIDIA H200: judged or waiting for one of 1 place" in done.stdout
    assert f"@{socket.gethostname()}, process {controller.pid}\n" in done.stdout
    wide = [line for line in done.stdout.splitlines() if len(line) > 80]
    assert all("another version" in line or socket.gethostname() in line for line in wide), done.stdout


def test_an_address_without_a_scheduler_is_an_error_that_says_what_to_do(kforge_here: KForge) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    done = kforge_here("cluster", url)
    assert done.returncode == 2
    assert f"Start one there: kforge cluster start {url}" in done.stderr
    done = kforge_here("forge", "bundled:level1/1", "--executor", f"dask:{url}", "--store", "nowhere")
    assert done.returncode == 2
    assert "no scheduler answers" in done.stderr
    assert not Path("nowhere").exists()


def test_a_scheduler_is_not_started_where_the_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        words = [sys.executable, "-m", "kforge.cli.app", "cluster", "start", url]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"no scheduler can be started at {url}: Address already in use" in done.stderr.replace("\n", " ")


def test_addresses_that_may_not_be_used_are_refused(kforge_here: KForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TLS_VARIABLE, raising=False)
    for words in (
        ("cluster", "tcp://head:1"),
        ("worker", "--scheduler", "tcp://head:1"),
        ("cluster", "start", "tcp://head:1"),
    ):
        done = kforge_here(*words)
        assert done.returncode == 2
        assert "--insecure" in done.stderr
    assert TLS_VARIABLE in kforge_here("worker", "--scheduler", "tls://head").stderr
    assert "is no address of a cluster" in kforge_here("cluster", "head").stderr


def test_certificates_are_made_with_a_command(kforge_here: KForge, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    done = kforge_here("cluster", "certificates", tmp_path / "tls")
    assert done.returncode == 0
    assert f"{TLS_VARIABLE}={tmp_path / 'tls'}" in done.stdout.replace("\n", "")
    assert (tmp_path / "tls" / "node.key").stat().st_mode & 0o777 == 0o600
    assert kforge_here("cluster", "certificates", tmp_path / "tls").returncode == 2


def test_a_worker_needs_a_platform_that_is_there(kforge_here: KForge) -> None:
    done = kforge_here("worker", "--scheduler", "tcp://127.0.0.1:1", "--platforms", "cpu", "--devices", "7")
    assert done.returncode == 2
    assert "platform cpu: no device 7; there are: 0" in done.stderr
    done = kforge_here("worker", "--scheduler", "tcp://127.0.0.1:1", "--platforms", "abacus")
    assert "no platform is called 'abacus'" in done.stderr


def test_what_stands_behind_the_colon() -> None:
    assert executor_names.whole_name("dask") == "dask"
    assert executor_names.whole_name("dask:tcp://localhost") == "dask:tcp://localhost:8786"
    assert not executor_names.judges_here("dask:tcp://localhost")
    assert not executor_names.leaves_jobs("dask")


@pytest.mark.toolchain
def test_a_worker_with_a_real_judge_says_what_a_local_judge_says(
    scale_relu: Problem, honest: Candidate, judge: Any
) -> None:
    settings = Settings(timing_seconds=0, compile_baseline=False, seeds=2)
    programs = [honest, Candidate(honest.source.replace("0.0f", "0.5f"))]
    wanted = [judge.evaluate(scale_relu, program, settings) for program in programs]
    assert len({verdict.outcome for verdict in wanted}) == 2
    with ClusterProcesses() as cluster:
        worker = cluster.add_judging_worker("--platforms", "cpu")
        address = parse_address(cluster.url)

        async def work() -> list[Report]:
            executor = ClusterExecutor(address, "cpu")
            jobs = [Job(str(number), scale_relu, program, settings) for number, program in enumerate(programs)]
            try:
                running = (executor.run(job, lambda _: None) for job in jobs)
                return await asyncio.wait_for(asyncio.gather(*running), 2 * PATIENCE)
            finally:
                await executor.close()

        reports = asyncio.run(work())
        [standing] = take_census(address, fresh=True).workers
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0, worker.lines
    assert [report.verdict.outcome for report in reports] == [verdict.outcome for verdict in wanted]
    assert standing.description is not None
    [group] = standing.description.groups
    evidence = reports[0].verdict.evidence
    assert evidence is not None
    assert evidence.hardware == group.model
    assert evidence.problem == scale_relu
    assert standing.description.sandbox == reports[0].verdict.sandbox


@pytest.mark.toolchain
def test_a_cluster_on_this_machine_for_a_try(kforge_here: KForge, tmp_path: Path) -> None:
    store = tmp_path / "store"
    options = ("--executor", "dask", "--store", store, "--iterations", "1", "--no-compile-baseline", "--json")
    done = kforge_here("forge", "bundled:level1/1", *options)
    assert done.returncode == 0, done.stderr
    left = subprocess.run(["ps", "-o", "args", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    assert "kforge.cluster" not in left, "its processes ended with it"
