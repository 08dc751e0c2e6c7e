"""The store when things break: killed processes, full disks, bad folders, damaged files, newer programs."""

from __future__ import annotations

import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.exc import OperationalError

from kforge.errors import RunBusy, StoreError, UsageError
from kforge.store import database, place, schema
from kforge.store.store import Store
from kforge.types import (
    Attempt,
    Completion,
    Intent,
    Message,
    Move,
    Outcome,
    Problem,
    Profile,
    Prompt,
    RunSpec,
    Usage,
    Verdict,
)

pytestmark = pytest.mark.pure

SPEC = RunSpec(Problem("gelu", "class Model: ..."))
BIG = 30_000


def attempt(step: int, chain: int = 0) -> Attempt:
    """One with a blob of its own."""
    text = f"{chain}/{step} " * (BIG // 4)
    verdict = Verdict(Outcome.GENERATION_FAILURE, "no program")
    return Attempt(Move(chain, step, Intent.FRESH), None, verdict, profiles=(Profile("tool", text=text),))


def fill(store: Store, run: str, first: int = 1, last: int = 1000) -> None:
    """Record calls and attempts, as far as it goes."""
    for step in range(first, last + 1):
        store.save_call(run, str(step), Completion("x" * 9000, "m"), "")
        store.add_attempt(run, attempt(step))


def check_database(folder: Path) -> None:
    connection = sqlite3.connect(folder / "kforge.db")
    try:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert connection.execute("pragma foreign_key_check").fetchall() == []
    finally:
        connection.close()


# --- processes ------------------------------------------------------------------------------------------------------

WRITER = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/store"]
from test_store_faults import *
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER + script, str(Path(__file__).parents[1]), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def test_two_processes_make_and_fill_one_store(tmp_path: Path) -> None:
    script = """
print("ready", flush=True)
sys.stdin.readline()
with Store.open(sys.argv[2]) as store:
    run = store.create_run(SPEC)
    for step in range(1, 41):
        store.save_call(run, f"0/{step}", Completion("", "m", Usage(1)), "")
        store.add_attempt(run, attempt(step))
"""
    folder = tmp_path / "s"
    processes = [start(script, folder) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with Store.open(folder) as store:
        assert [summary.attempts for summary in store.runs()] == [40, 40]
        for summary in store.runs():
            assert store.history(summary.id) == tuple(attempt(step) for step in range(1, 41))
            assert store.spent(summary.id) == Usage(40)
    check_database(folder)


def test_kill_9_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    """Twenty writers, each killed at a random moment; each goes on where the last one was stopped."""
    script = """
def write(folder, run, said):
    with Store.open(folder) as store, store.hold(run):
        step = len(store.history(run))
        while True:
            step += 1
            if store.call(run, str(step)) is None:
                store.save_call(run, str(step), Completion(str(step), "m", Usage(1)), "")
                os.write(said, f"call {step}\\n".encode())
            store.add_attempt(run, attempt(step))
            os.write(said, f"attempt {step}\\n".encode())

folder, run, log, seed = sys.argv[2:]
chance = random.Random(int(seed))
lines = lambda: Path(log).read_bytes().count(b"\\n")
for _ in range(20):
    said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    child = os.fork()
    if child == 0:
        try:
            write(folder, run, said)
        except BaseException as error:
            os.write(said, f"fault {error!r}\\n".encode())
        os._exit(1)
    os.close(said)
    goal, late = lines() + chance.randrange(8), time.monotonic() + 10
    while lines() < goal and time.monotonic() < late:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
    folder, log = tmp_path / "s", tmp_path / "log"
    log.touch()
    with Store.open(folder) as store:
        run = store.create_run(SPEC)
    seed = random.randrange(10**6)
    process = start("import time\n" + script, folder, run, log, seed)
    process.communicate(timeout=60)
    assert process.returncode == 0
    said = log.read_text().splitlines()
    with Store.open(folder) as store, store.hold(run):
        steps = [item.move.step for item in store.history(run)]
        assert steps == list(range(1, len(steps) + 1)), seed
        told = [line for line in said if line.startswith("attempt")]
        assert set(told) <= {f"attempt {step}" for step in steps}, seed
        assert len(told) >= len(steps) - 20, seed
        calls = [line.split()[1] for line in said if line.startswith("call")]
        assert all(store.call(run, slot) == Completion(slot, "m", Usage(1)) for slot in calls), seed
        assert len(steps) > 5, "the writers were killed before they wrote"
    assert not [line for line in said if line.startswith("fault")]
    check_database(folder)


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    """Not even where a child that it forked lives on."""
    script = """
store = Store.open(sys.argv[2])
with store.hold(sys.argv[3]):
    child = os.fork()
    if child == 0:
        signal.pause()
    print(child, flush=True)
    signal.pause()
"""
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        process = start(script, tmp_path / "s", run)
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            with pytest.raises(RunBusy, match=f"process {process.pid} on"), store.hold(run):
                pass
            process.kill()
            process.wait()
            os.kill(child, 0)
            with store.hold(run):
                pass
        finally:
            os.kill(child, signal.SIGKILL)
            process.communicate()
        assert list((tmp_path / "s" / "locks").iterdir()) == []


# --- disks ----------------------------------------------------------------------------------------------------------


def test_a_really_full_disk(small_disk: Path) -> None:
    with Store.open(small_disk / "s") as store:
        run = store.create_run(SPEC)
        with pytest.raises(StoreError, match="the disk is full"):
            fill(store, run)
        done = len(store.history(run))
        assert done > 3
        assert store.history(run) == tuple(attempt(step) for step in range(1, done + 1))
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        store.add_attempt(run, attempt(done + 1))
        assert len(store.history(run)) == done + 1
    check_database(small_disk / "s")


def test_a_read_only_disk(small_disk: Path) -> None:
    with Store.open(small_disk / "s") as store:
        run = store.create_run(SPEC)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for name in ("s", "new"):
        with pytest.raises(StoreError, match="make the folder and its files writable"):
            Store.open(small_disk / name)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with Store.open(small_disk / "s") as store:
        assert store.run("last").id == run


def test_a_read_only_folder(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("read-only folder: root writes everywhere")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="make the folder and its files writable"):
            Store.open(tmp_path / "s")
    finally:
        tmp_path.chmod(0o700)


def test_a_full_database(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        store.add_attempt(run, attempt(1))
        store.close()  # connections made from here on may not grow the file

        def limit(connection: sqlite3.Connection, _: object) -> None:
            connection.execute("pragma max_page_count=1")

        event.listen(store._database.engine, "connect", limit)
        with pytest.raises(StoreError, match=r"the disk is full.*what was recorded before is safe"):
            fill(store, run, first=2)
        event.remove(store._database.engine, "connect", limit)
        store.close()
        done = len(store.history(run))
        assert store.history(run) == tuple(attempt(step) for step in range(1, done + 1))
        store.add_attempt(run, attempt(done + 1))


def test_a_disk_that_is_full_for_blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        monkeypatch.setattr(os, "fsync", no_space)
        with pytest.raises(StoreError, match="the disk is full"):
            store.add_attempt(run, attempt(1))
        assert store.history(run) == ()
        assert [path for path in (tmp_path / "s" / "blobs").rglob("*") if path.is_file()] == []
        monkeypatch.undo()
        store.add_attempt(run, attempt(1))
        assert store.history(run) == (attempt(1),)


# --- places ---------------------------------------------------------------------------------------------------------


def test_something_else_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "s" / "kforge.db").mkdir(parents=True)
    for bad in ("file", "file/below", "s"):
        with pytest.raises(StoreError, match="is in the way of the store"):
            Store.open(tmp_path / bad)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///a.db?mode=ro",
        "mysql://u:hunter2@h/x",
        "postgresql://u:hunter2@h:p/x",
    ],
)
def test_what_is_no_place(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Store.open(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@127.0.0.1:1/x", "postgresql://127.0.0.1:1/x?password=hunter2"]
)
def test_passwords_are_not_told(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="PostgreSQL: psycopg is not installed")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="the server cannot be reached") as caught:
        Store.open(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_damaged_file(tmp_path: Path) -> None:
    folder, file = tmp_path / "s", tmp_path / "s" / "kforge.db"
    with Store.open(folder) as store:
        run = store.create_run(SPEC)
        fill(store, run, last=30)
    whole = file.read_bytes()

    def read_all() -> None:
        with Store.open(folder) as store:
            store.history(run)
            assert store.call(run, "30")

    read_all()
    for kept in (0, 8192, len(whole) // 2):
        file.write_bytes(whole[:kept] + b"\xff" * (len(whole) - kept))
        with pytest.raises(StoreError, match="the database file is damaged"):
            read_all()
    file.write_bytes(whole)
    with Store.open(folder) as store, store._database.write_transaction() as connection:
        connection.exec_driver_sql("update kforge_attempts set document = substr(document, 10)")
    with pytest.raises(StoreError, match="a record in the store is damaged"):
        read_all()


def test_a_writer_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        other = sqlite3.connect(tmp_path / "s" / "kforge.db", isolation_level=None)
        other.execute("begin immediate")
        assert store.history(run) == ()
        with pytest.raises(StoreError, match="kept it locked for too long"):
            store.add_attempt(run, attempt(1))
        other.close()
        store.add_attempt(run, attempt(1))


def test_network_file_systems_are_known() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nhost:/x /home/my\\040files nfs4 rw 0 0\ntmpfs /home/my\\040files/tmp tmpfs rw 0 0\n"
    assert place.on_network(Path("/home/my files/a.db"), mounts)
    assert not place.on_network(Path("/home/my files/tmp/a.db"), mounts)
    assert not place.on_network(Path("/home/my"), mounts)


def test_a_link_to_a_network_file_system_is_seen_through(tmp_path: Path) -> None:
    real = tmp_path / "far"
    real.mkdir()
    (tmp_path / "near").symlink_to(real)
    mounts = f"/dev/sda1 / ext4 rw 0 0\nserver:/x {real} nfs4 rw 0 0\n"
    assert place.on_network(tmp_path / "near" / "kforge.db", mounts)
    assert not place.on_network(tmp_path / "kforge.db", mounts)


def test_without_wal_it_works_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        assert store.notes == ()
    monkeypatch.setattr(database, "on_network", lambda _: True)
    with Store.open(tmp_path / "s") as store:
        assert "network file system" in store.notes[0]
        store.add_attempt(run, attempt(1))
        with store._database.read_transaction() as connection:
            assert connection.exec_driver_sql("pragma journal_mode").scalar() == "delete"
            assert connection.exec_driver_sql("pragma synchronous").scalar() == 2
    monkeypatch.undo()
    with Store.open(tmp_path / "s") as store:
        assert store.notes == ()
        assert store.history(run) == (attempt(1),)


def test_a_file_system_that_refuses_wal(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///file:{tmp_path}/a.db?vfs=unix-dotfile&uri=true")
    with engine.connect() as connection:
        connection.exec_driver_sql("begin")
        (note,) = database.enter_journal(connection, network=False)
    engine.dispose()
    assert "this file system does not allow it" in note


@pytest.mark.parametrize(("code", "told"), [("SQLITE_IOERR", True), ("SQLITE_PROTOCOL", True), ("SQLITE_FULL", False)])
def test_what_sqlite_says_when_wal_cannot_be(code: str, told: bool) -> None:
    words = {"SQLITE_IOERR": "disk I/O error", "SQLITE_PROTOCOL": "locking protocol", "SQLITE_FULL": "disk is full"}
    engine = create_engine("sqlite://")

    @event.listens_for(engine, "before_cursor_execute")
    def refuse(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement == "pragma journal_mode=wal":
            raise OperationalError(statement, None, sqlite3.OperationalError(words[code]))

    with engine.connect() as connection:
        connection.exec_driver_sql("begin")
        if told:
            assert "does not allow it" in database.enter_journal(connection, network=False)[0]
        else:
            with pytest.raises(OperationalError):
                database.enter_journal(connection, network=False)
    engine.dispose()


# --- versions -------------------------------------------------------------------------------------------------------


def test_migrations_lead_to_the_schema(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "kforge.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [schema.HEAD]
    for _ in range(2):
        with Store.open(tmp_path / "s") as store, store._database.read_transaction() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
            assert context.get_current_revision() == schema.HEAD
            assert compare_metadata(context, schema.metadata) == []


def test_a_store_of_a_newer_program(tmp_path: Path) -> None:
    Store.open(tmp_path / "s").close()
    connection = sqlite3.connect(tmp_path / "s" / "kforge.db")
    connection.execute("update kforge_version set version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"newer KForge \(its layout is 9999"):
        Store.open(tmp_path / "s")


def test_a_record_of_a_newer_program(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        store.save_call(run, "1", Completion("", "m"), "")
        with store._database.write_transaction() as connection:
            connection.exec_driver_sql('update kforge_calls set document = \'{"text": "", "soul": 1}\'')
        with pytest.raises(StoreError, match="upgrade KForge"):
            store.call(run, "1")


# --- privacy --------------------------------------------------------------------------------------------------------


def test_the_store_is_private_and_out_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open() as store:
        run = store.create_run(SPEC)
        store.add_attempt(run, attempt(1))
        files = [path for path in Path(".kforge").rglob("*") if path.is_file() and path.name != ".gitignore"]
        assert len(files) >= 2
        assert {path.stat().st_mode & 0o077 for path in [Path(".kforge"), *files]} == {0}
    assert Path(".kforge/.gitignore").read_text() == "*\n"


def test_a_folder_of_the_users_own_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("")
    tmp_path.chmod(0o755)
    Store.open(f"sqlite:///{tmp_path}/mine.db").close()
    assert not (tmp_path / ".gitignore").exists()
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "mine.db").stat().st_mode & 0o077 == 0


def test_what_the_owner_shares_stays_shared(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        blobs = tmp_path / "s" / "blobs"
        blobs.chmod(0o770)
        blobs.with_name("locks").chmod(0o770)
        store.add_attempt(run, attempt(1))
        with store.hold(run):
            assert (tmp_path / "s" / "locks" / run).stat().st_mode & 0o777 == 0o660
        (blob,) = (path for path in blobs.rglob("*") if path.is_file())
        assert blob.stat().st_mode & 0o777 == 0o660
        assert blob.parent.stat().st_mode & 0o777 == 0o770


def test_prompts_are_kept_only_when_given(tmp_path: Path) -> None:
    prompt = Prompt((Message("user", "the secret recipe"),))

    def holds_it() -> bool:
        return any(b"secret recipe" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        store.save_call(run, "1", Completion("reply", "m"), prompt.id)
        assert not holds_it()
        store.save_call(run, "2", Completion("reply", "m"), prompt.id, prompt)
        assert holds_it()
        assert store.prompt(run, "2") == prompt
