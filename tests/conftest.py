"""Shared fixtures. A tier that cannot run on this machine is skipped by name, with the reason.

`make test` runs the tests in several processes (pytest-xdist), plain `pytest` in one. Of several processes, one runs
all tests of a file or of an `xdist_group`, but those of the files in `SPREAD` go to whichever is free. Tests marked
`quiet` come last, and nothing else runs beside them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from conditions import wait_until

# A limit of time for each example would fail on a busy machine, and says nothing of what is tested.
hypothesis.settings.register_profile("kforge", deadline=None)
hypothesis.settings.load_profile("kforge")

HERE = Path(__file__).parent
SPREAD = ("test_catalogue.py", "test_evaluate.py")
POSTGRES = "KFORGE_TEST_POSTGRES"
"""Names a server where databases may be made; without it, one is started."""
SIDE_BY_SIDE = "PYTEST_XDIST_WORKER" in os.environ
"""Whether this is one of several processes that run tests."""

if SIDE_BY_SIDE:
    # Threads that spin while they wait would take the processor from the other processes; torch reads it when loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not SIDE_BY_SIDE:
        return
    for item in items:
        if _is_quiet(item):
            item.add_marker(pytest.mark.xdist_group("quiet"))
        elif item.path.name not in SPREAD and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_place)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Without groups, each process would start every judge anew, and a quiet test would not be alone."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if SIDE_BY_SIDE and not all("@" in item.nodeid for item in grouped):
        raise pytest.UsageError(
            "groups of tests are not kept together: --dist=loadgroup, and the versions in constraints.txt"
        )


def _is_quiet(item: pytest.Item) -> bool:
    return item.get_closest_marker("quiet") is not None


def _place(item: pytest.Item) -> int:
    """What is handed out in large pieces comes first, so that all processes end at about the same time."""
    if _is_quiet(item):
        return 3
    if item.get_closest_marker("xdist_group"):
        return 0
    return 1 if item.get_closest_marker("slow") else 2


class Floor:
    """Where tests run: many side by side, or one alone. The locks of two files keep the processes in order."""

    def __init__(self) -> None:
        self._floor = os.open(__file__, os.O_RDONLY)
        self._queue = os.open(HERE / "makers.py", os.O_RDONLY)

    def take(self, alone: bool) -> None:
        """Wait until nothing runs that may not run beside it. Who comes later waits behind it."""
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        fcntl.flock(self._floor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._queue, fcntl.LOCK_UN)

    def leave(self) -> None:
        fcntl.flock(self._floor, fcntl.LOCK_UN)


FLOOR = Floor() if SIDE_BY_SIDE else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if FLOOR is None:
        return (yield)
    FLOOR.take(alone=_is_quiet(item))
    try:
        return (yield)
    finally:
        FLOOR.leave()


@pytest.fixture
def alone() -> Callable[[], bool]:
    """For a test that others may have disturbed: from the call on it is alone. Says whether it was not before."""

    def alone() -> bool:
        if FLOOR is not None:
            FLOOR.leave()
            FLOOR.take(alone=True)
        return FLOOR is not None

    return alone


def pytest_runtest_setup(item: pytest.Item) -> None:
    wants = {mark.name for mark in item.iter_markers()}
    if wants & {"cpu", "toolchain", "sandbox"} and importlib.util.find_spec("torch") is None:
        pytest.skip("tier cpu: torch is not installed")
    if wants & {"toolchain", "sandbox"} and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("tier toolchain: no C++ compiler (apt-get install g++)")
    if "accelerator" in wants:
        reason = _no_accelerator()
        if reason:
            pytest.skip(f"tier accelerator: {reason}")


@functools.cache
def _no_accelerator() -> str:
    """Why this machine's accelerator cannot be used; empty if it can."""
    from kforge import registry

    platform = registry.load("platforms", "cuda")
    if platform.emulated:
        return "no NVIDIA driver: libcuda.so.1 is not on this machine (install it; `nvidia-smi` must list the GPU)"
    return str(platform.unavailable_reason())


@pytest.fixture(scope="session")
def judge() -> Iterator[Any]:
    """One warm judge for the whole run, as in use."""
    from kforge.worker.judge.judge import Judge

    with Judge("cpu") as judge:
        yield judge


@pytest.fixture(scope="session")
def judges() -> Iterator[dict[str, Any]]:
    """A warm judge for each platform that is emulated here, by name."""
    from kforge import registry
    from kforge.worker.judge.judge import Judge

    made = {name: Judge(name) for name in ("cuda", "metal") if registry.load("platforms", name).emulated}
    yield made
    for judge in made.values():
        judge.close()


@pytest.fixture
def kforge_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A command in this process: all of it but the start of Python."""
    from kforge.cli.app import main

    def run(*words: Any) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["kforge", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return subprocess.CompletedProcess(sys.argv, ended.value.code, said.out, said.err)

    return run


@pytest.fixture
def kforge_warm(kforge_here: Callable[..., Any], judge: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The same, with the warm judge of all tests in place of one of its own."""
    monkeypatch.setattr(judge, "close", lambda: None)
    for module in ("kforge.worker.judges", "kforge.cli.evaluate", "kforge.cli.verify"):
        monkeypatch.setattr(f"{module}.Judge", lambda *_: judge)
    return kforge_here


@pytest.fixture(scope="session")
def scale_relu() -> Any:
    from kforge import Problem

    return Problem.from_file(HERE / "catalogue" / "problems" / "scale_relu.py")


@pytest.fixture(scope="session")
def honest() -> Any:
    from kforge import Candidate

    return Candidate((HERE / "catalogue" / "benign" / "example_style.py").read_text())


@pytest.fixture
def situation_fresh(scale_relu: Any) -> Any:
    """The first move on a small problem."""
    import makers

    return makers.situation(scale_relu)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte and a half."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("small disk: this user may not mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _postgres_binaries() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL database where databases may be made."""
    psycopg = pytest.importorskip("psycopg", reason="PostgreSQL: psycopg is not installed")
    if given := os.environ.get(POSTGRES):
        yield given
        return
    binaries = _postgres_binaries()
    if binaries is None:
        pytest.skip(f"PostgreSQL: no server here (apt-get install postgresql), and {POSTGRES} is not set")
    folder = Path(tempfile.mkdtemp(prefix="kforge-postgres-"))
    user: dict[str, Any] = {}
    if os.getuid() == 0:  # the server refuses root
        user = {"user": "nobody"}
        shutil.chown(folder, "nobody")
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    made = [binaries / "initdb", "-D", folder / "data", "-A", "trust", "-U", "kforge", "--no-sync"]
    subprocess.run(made, check=True, **quiet, **user)
    options = ["-k", folder, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]
    with subprocess.Popen([binaries / "postgres", "-D", folder / "data", *options], **quiet, **user) as process:

        def answers() -> bool:
            assert process.poll() is None, "PostgreSQL ended at once"
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(f"host={folder} user=kforge dbname=postgres").close()
                return True
            return False

        try:
            wait_until(answers, "PostgreSQL answers")
            yield f"postgresql://kforge@/postgres?host={folder}"
        finally:
            process.terminate()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(postgres_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty database of one's own."""
    import psycopg

    from kforge.store import place

    monkeypatch.chdir(tmp_path)
    name = f"kforge_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield place.make_url(postgres_server).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"drop database {name} with (force)")
