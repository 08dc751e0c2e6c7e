"""Who may speak to a cluster, and what those are told who may not."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")
pytest.importorskip("cryptography", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_processes import ClusterProcesses, free_port

from conditions import PATIENCE
from kforge.cluster.address import parse_address
from kforge.cluster.certificates import make_certificates
from kforge.cluster.executor import ClusterExecutor, LocalClusterExecutor
from kforge.cluster.inquiry import take_census
from kforge.cluster.local_cluster import LocalCluster
from kforge.cluster.reachability import SchedulerUnreachable, check_reachable, make_sure_reachable
from kforge.errors import HarnessError
from kforge.types import Candidate, Job, Problem, Report, Settings

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]

JOB = Job("one", Problem("sample", "class Model: ..."), Candidate("class ModelNew: ..."))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls") / "own").path


@pytest.fixture(scope="module")
def strange_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls") / "strange").path


def test_with_the_clusters_certificates_jobs_are_carried_out(certificates: Path, strange_certificates: Path) -> None:
    with ClusterProcesses(certificates) as cluster:
        cluster.add_worker()
        address = parse_address(cluster.url, certificates)
        assert len(take_census(address, fresh=True).workers) == 1

        async def work() -> Report:
            executor = ClusterExecutor(address, "cpu")
            try:
                return await asyncio.wait_for(executor.run(JOB, lambda _: None), PATIENCE)
            finally:
                await executor.close()

        assert asyncio.run(work()).job == "one"
        _refuses_strangers(cluster, strange_certificates)


def _refuses_strangers(cluster: ClusterProcesses, strange: Path) -> None:
    """Neither side speaks to one whose certificate another authority signed, nor to one that has none."""
    with pytest.raises(SchedulerUnreachable, match="do not agree on certificates: its certificate is not of"):
        check_reachable(parse_address(cluster.url, strange))
    mixed = strange.parent / "mixed"
    mixed.mkdir(exist_ok=True)
    assert cluster.tls is not None
    for name, source in (("ca.pem", cluster.tls), ("node.pem", strange), ("node.key", strange)):
        (mixed / name).write_bytes((source / name).read_bytes())
        (mixed / name).chmod(0o600)
    with pytest.raises(SchedulerUnreachable, match="do not agree on certificates: it refuses the one in"):
        check_reachable(parse_address(cluster.url, mixed))
    with pytest.raises(SchedulerUnreachable, match="is no scheduler without encryption: try tls://"):
        check_reachable(parse_address(cluster.url.replace("tls", "tcp")), seconds=2)
    worker = cluster.add_worker("--tls", str(strange), wait=False)
    worker.wait_for_line("do not agree on certificates")
    assert len(take_census(parse_address(cluster.url, cluster.tls), fresh=True).workers) == 1


def test_a_scheduler_without_encryption_is_not_spoken_to_with_it(certificates: Path) -> None:
    with ClusterProcesses() as cluster, pytest.raises(SchedulerUnreachable, match="do not agree on certificates"):
        check_reachable(parse_address(cluster.url.replace("tcp", "tls"), certificates), seconds=5)


def test_certificates_that_hold_no_longer_are_said_to(tmp_path: Path) -> None:
    folder = make_certificates(tmp_path / "tls", days=0).path
    # That a worker or a controller of such a cluster finds.
    with (
        ClusterProcesses(folder) as cluster,
        pytest.raises(SchedulerUnreachable, match=r"do not hold now: certificate has expired.*make new ones"),
    ):
        check_reachable(parse_address(cluster.url, folder))


def test_nobody_waits_for_a_silent_port_who_was_told_to_stop() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = parse_address(f"tcp://127.0.0.1:{listener.getsockname()[1]}")

        async def work() -> socket.socket:
            waiting = asyncio.create_task(make_sure_reachable(address, seconds=3600))
            connection, _ = await asyncio.to_thread(listener.accept)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return connection

        # Nothing was said on it, and nobody hangs on it.
        asyncio.run(work()).close()


def test_no_scheduler_and_no_dask_are_told_apart() -> None:
    port = free_port()
    with pytest.raises(SchedulerUnreachable, match=r"no scheduler answers at .*Start one there: kforge cluster start"):
        check_reachable(parse_address(f"tcp://127.0.0.1:{port}"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ending = threading.Thread(target=lambda: listener.accept()[0].close())
        ending.start()
        with pytest.raises(SchedulerUnreachable, match="see what else uses that port"):
            check_reachable(parse_address(f"tcp://127.0.0.1:{listener.getsockname()[1]}"))
        ending.join()


def test_a_cluster_for_a_try_is_closed_to_others_of_this_machine() -> None:
    cluster = LocalCluster("cpu")
    try:
        address = cluster.start()
        assert (address.scheme, address.is_loopback) == ("tls", True)
        assert address.certificates is not None
        folder = address.certificates.path
        assert folder.parent.stat().st_mode & 0o077 == 0
        with pytest.raises(SchedulerUnreachable):
            check_reachable(parse_address(f"tcp://127.0.0.1:{address.port}"))
        check_reachable(address)
    finally:
        cluster.close()
    assert not folder.exists()


@pytest.mark.parametrize(("level", "is_hidden"), [("process", True), ("unshare", False)])
def test_keys_are_hidden_from_programs_without_a_sandbox(
    monkeypatch: pytest.MonkeyPatch, level: str, is_hidden: bool
) -> None:
    """A cluster for a try runs programs as children of a sibling: the environment here is one file away."""
    hidden: list[bool] = []
    monkeypatch.setattr("kforge.cluster.executor.forbid_inspection", lambda: hidden.append(True))
    monkeypatch.setattr("kforge.worker.sandbox.levels.choose", lambda wanted: wanted)

    def start(_: LocalCluster) -> None:
        raise HarnessError("far enough")

    monkeypatch.setattr(LocalCluster, "start", start)
    job = Job("one", JOB.problem, JOB.candidate, Settings(sandbox=level))
    with pytest.raises(HarnessError, match="far enough"):
        asyncio.run(LocalClusterExecutor("cpu").run(job, lambda _: None))
    assert bool(hidden) is is_hidden
